"""Classes, instances and calls, as far as declarations of arguments need them."""

from __future__ import annotations

import ast
import sys
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from speclaunch.engine.extraction.names import Names, assignments
from speclaunch.engine.extraction.source import PACKAGE
from speclaunch.engine.extraction.values import (
    SUPPRESS,
    BoundMethod,
    ClassValue,
    EnumMember,
    ExpressionScope,
    FunctionValue,
    Instance,
    OpaqueValue,
)

_BUILTINS: dict[str, Callable[..., Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": dict,
    "sorted": sorted,
    "len": len,
    "max": max,
    "min": min,
    "range": range,
}
_FIELD = ClassValue("", ast.ClassDef("field", [], [], [], []))
_DEPTH = 60


class Objects(Names):
    """Attributes and calls of what the package defines."""

    _depth = 0

    @abstractmethod
    def elements(self, nodes: list[ast.expr], scope: ExpressionScope) -> list[Any]:
        """The values of the parts of a display or of a call, starred ones spread out."""

    @abstractmethod
    def block(self, body: list[ast.stmt], scope: ExpressionScope) -> tuple[Any] | None:
        """Run statements; the wrapped value of the first ``return`` reached, or None."""

    def items(self, value: Any) -> list[Any]:
        """What iterating over a value yields; nothing for what can't be known."""
        if isinstance(value, ClassValue):
            return [
                member
                for name in assignments(value)
                if isinstance(member := self.attribute(value, name), EnumMember)
            ]
        if isinstance(value, list | tuple | set | frozenset | dict | range):
            return list(value)
        return []

    def bases(self, owner: ClassValue) -> list[Any]:
        """The base classes, evaluated."""
        return [self.value(base, ExpressionScope(owner.file)) for base in owner.node.bases]

    def is_enum(self, owner: ClassValue) -> bool:
        """Whether the class is an enumeration."""
        return any(
            "Enum" in base.name if isinstance(base, OpaqueValue) else self.is_enum(base)
            for base in self.bases(owner)
            if isinstance(base, OpaqueValue | ClassValue)
        )

    def method(self, owner: ClassValue, name: str) -> FunctionValue | None:
        """A method of a class, its own or inherited."""
        for node in owner.node.body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return FunctionValue(owner.file, node, owner)
        for base in self.bases(owner):
            if isinstance(base, ClassValue) and (found := self.method(base, name)):
                return found
        return None

    def attribute(self, value: Any, name: str) -> Any:  # noqa: PLR0911
        """``value.name``."""
        match value:
            case OpaqueValue(text="argparse") if name == "SUPPRESS":
                return SUPPRESS
            case OpaqueValue(text="sys") if name == "maxsize":
                return sys.maxsize
            case OpaqueValue():
                return OpaqueValue(f"{value.text}.{name}")
            case EnumMember():
                return value.name if name == "name" else value.value
            case Instance():
                return self._instance_attribute(value, name)
            case ClassValue():
                return self._class_attribute(value, name)
            case _:
                return BoundMethod(value, name)

    def _instance_attribute(self, value: Instance, name: str) -> Any:
        made = self._class_attribute(value.of, name)
        return BoundMethod(value, name) if isinstance(made, FunctionValue | OpaqueValue) else made

    def _class_attribute(self, owner: ClassValue, name: str) -> Any:
        given = assignments(owner).get(name)
        if given is not None:
            scope = ExpressionScope(owner.file, owner=owner)
            made = default_of(self, self.value(given, scope), scope)
            return EnumMember(name, made) if self.is_enum(owner) else made
        found = self.method(owner, name)
        if found is not None:
            return found
        for base in self.bases(owner):
            if isinstance(base, ClassValue):
                made = self._class_attribute(base, name)
                if not isinstance(made, OpaqueValue):
                    return made
        return OpaqueValue(f"{owner.name}.{name}")

    def _call(self, node: ast.Call, scope: ExpressionScope) -> Any:
        function = self.value(node.func, scope)
        positional = self.elements(node.args, scope)
        keywords = {word.arg: self.value(word.value, scope) for word in node.keywords if word.arg}
        result = self.call(function, positional, keywords, f"{scope.file}:{node.lineno}")
        return OpaqueValue(ast.unparse(node)) if isinstance(result, OpaqueValue) else result

    def call(  # noqa: PLR0911
        self,
        function: Any,
        positional: list[Any],
        keywords: dict[str, Any],
        src: str = "",  # noqa: ARG002  for the readers of calls that override this
    ) -> Any:
        """Call what an expression yielded; ``src`` is the ``file:line`` of the call."""
        match function:
            case OpaqueValue(text="os.getenv" | "os.environ.get"):
                return positional[1] if len(positional) > 1 else keywords.get("default")
            case OpaqueValue(text="sys.modules.get"):
                return None
            case OpaqueValue(name="field"):
                return Instance(_FIELD, (), tuple(keywords.items()))
            case OpaqueValue(text=text) if text in _BUILTINS:
                return self._builtin(text, positional, keywords)
            case ClassValue():
                return Instance(function, tuple(positional), tuple(keywords.items()))
            case FunctionValue():
                return self.run(function, positional, keywords)
            case BoundMethod():
                return self._call_method(function, positional, keywords)
            case _:
                return OpaqueValue("call")

    def _builtin(self, name: str, positional: list[Any], keywords: dict[str, Any]) -> Any:
        if any(isinstance(item, OpaqueValue) for item in positional):
            return OpaqueValue(name)
        listed = [self.items(item) if isinstance(item, ClassValue) else item for item in positional]
        return _BUILTINS[name](*listed, **keywords)

    def _call_method(
        self, bound: BoundMethod, positional: list[Any], keywords: dict[str, Any]
    ) -> Any:
        receiver = bound.receiver
        if isinstance(receiver, Instance):
            if bound.name == "get" and receiver.of.name.startswith("Env"):
                given = receiver.arguments[0] if receiver.arguments else None
                return self.call(given, [], {}) if isinstance(given, FunctionValue) else given
            found = self.method(receiver.of, bound.name)
            return (
                self.run(found, [receiver, *positional], keywords) if found else OpaqueValue("call")
            )
        if isinstance(receiver, str | list | tuple | set | frozenset | dict):
            result = getattr(receiver, bound.name)(*positional, **keywords)
            return list(result) if bound.name in ("keys", "values", "items") else result
        return OpaqueValue("call")

    def run(self, function: FunctionValue, positional: list[Any], keywords: dict[str, Any]) -> Any:
        """Run a function of the package; None when it returns nothing."""
        if self._depth > _DEPTH or not function.file.startswith(PACKAGE):
            return OpaqueValue(function.name)
        scope = ExpressionScope(function.file)
        scope.names.update(bind_parameters(self, function, positional, keywords))
        done = self.block(function.node.body, scope)
        return None if done is None else done[0]


def bind_parameters(
    evaluator: Objects, function: FunctionValue, positional: list[Any], keywords: dict[str, Any]
) -> dict[str, Any]:
    """The parameters of a call by name; what ``**kwargs`` takes is under ``"**"``."""
    signature = function.node.args
    scope = ExpressionScope(function.file)
    names = [parameter.arg for parameter in [*signature.posonlyargs, *signature.args]]
    bound: dict[str, Any] = {}
    defaults = zip(reversed(names), reversed(signature.defaults), strict=False)
    bound.update({name: evaluator.value(node, scope) for name, node in defaults})
    for parameter, default in zip(signature.kwonlyargs, signature.kw_defaults, strict=True):
        names.append(parameter.arg)
        if default is not None:
            bound[parameter.arg] = evaluator.value(default, scope)
    bound.update(zip(names, positional, strict=False))
    bound.update({name: value for name, value in keywords.items() if name in names})
    bound["**"] = {name: value for name, value in keywords.items() if name not in names}
    return bound


def default_of(evaluator: Objects, value: Any, scope: ExpressionScope) -> Any:
    """A field's default: ``field(default=…)`` and ``field(default_factory=…)`` unpacked."""
    if not (isinstance(value, Instance) and value.of is _FIELD):
        return value
    keywords = dict(value.keywords)
    if "default" in keywords:
        return keywords["default"]
    factory = keywords.get("default_factory")
    if isinstance(factory, OpaqueValue) and factory.text.startswith("lambda:"):
        body = ast.parse(factory.text, mode="eval").body
        return evaluator.value(body.body, scope) if isinstance(body, ast.Lambda) else factory
    return OpaqueValue("field()") if factory is None else evaluator.call(factory, [], {})
