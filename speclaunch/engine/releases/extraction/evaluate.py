"""Static evaluator of constant Python expressions: choices, defaults and types.

It follows names through the package's imports, applies module-level ``+=``, ``.extend`` and
``.add``, expands enumerations and runs small functions. Unknown values become an
`OpaqueValue`, which counts as false. It assumes an empty environment and no accelerator, as for
``--help`` on a machine without a GPU.
"""

from __future__ import annotations

import ast
import operator
import sys
from collections.abc import Callable
from typing import Any

from speclaunch.engine.releases.extraction.source import (
    PACKAGE,
    SUPPRESS,
    BoundMethod,
    ClassValue,
    EnumMember,
    ExpressionScope,
    FunctionValue,
    Instance,
    OpaqueValue,
    PackageSource,
    assignments,
    mentions,
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
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.BitOr: operator.or_,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
_DEPTH = 60


class SourceEvaluator:
    """Evaluator of the names, expressions and statements of one package."""

    def __init__(self, source: PackageSource) -> None:
        self.source = source
        self._globals: dict[tuple[str, str], tuple[Any] | None] = {}
        self._depth = 0

    def lookup(self, name: str, scope: ExpressionScope) -> Any:
        """Return the value of a local, class-level or module-level name; else an OpaqueValue."""
        if name in scope.names:
            return scope.names[name]
        assigned = {} if scope.owner is None else assignments(scope.owner)
        if name in assigned:
            return self.value(assigned[name], scope)
        found = self.global_name(scope.file, name)
        return OpaqueValue(name) if found is None else found[0]

    def global_name(self, file: str, name: str) -> tuple[Any] | None:
        """Return the value of a module-level name as a 1-tuple; None if there is no such name."""
        key = (file, name)
        if key not in self._globals:
            self._globals[key] = None  # a name that depends on itself is unknown
            self._globals[key] = self._module_value(file, name)
        found: tuple[Any] | None = self._globals[key]
        return found

    def _module_value(self, file: str, name: str) -> tuple[Any] | None:
        tree = self.source.tree(file)
        scope = ExpressionScope(file)
        for node in [] if tree is None else tree.body:
            if mentions(node, name):
                self.statement(node, scope, only=name)
        if name in scope.names:
            return (scope.names[name],)
        for node in [] if tree is None else tree.body:
            if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
                origin = self._import_file(node, file)
                found = None if origin is None else self.global_name(origin, name)
                if found is not None:
                    return found
        return None

    def module_expression(self, file: str, name: str) -> tuple[str, ast.expr] | None:
        """Return the file and the value node of a module-level assignment; None if absent."""
        for node in getattr(self.source.tree(file), "body", ()):
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                    return file, node.value
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    origin = self._import_file(node, file)
                    if (alias.asname or alias.name) == name and origin is not None:
                        return self.module_expression(origin, alias.name)
        return None

    def _import_file(self, node: ast.ImportFrom, file: str) -> str | None:
        dotted = node.module or ""
        if node.level:
            folder = file.split("/")[: -node.level]
            dotted = ".".join([*folder, *([dotted] if dotted else [])])
        return self.source.module_file(dotted)

    def _import(self, node: ast.ImportFrom, scope: ExpressionScope, only: str | None) -> None:
        origin = self._import_file(node, scope.file)
        for alias in node.names:
            local = alias.asname or alias.name
            if only is not None and local != only:
                continue
            found = None if origin is None else self.global_name(origin, alias.name)
            if found is None:
                scope.names[local] = OpaqueValue(f"{node.module}.{alias.name}")
            else:
                scope.names[local] = found[0]

    def items(self, value: Any) -> list[Any]:
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
        return [self.value(base, ExpressionScope(owner.file)) for base in owner.node.bases]

    def is_enum(self, owner: ClassValue) -> bool:
        return any(
            "Enum" in base.name if isinstance(base, OpaqueValue) else self.is_enum(base)
            for base in self.bases(owner)
            if isinstance(base, OpaqueValue | ClassValue)
        )

    def method(self, owner: ClassValue, name: str) -> FunctionValue | None:
        for node in owner.node.body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return FunctionValue(owner.file, node, owner)
        for base in self.bases(owner):
            if isinstance(base, ClassValue) and (found := self.method(base, name)):
                return found
        return None

    def attribute(self, value: Any, name: str) -> Any:  # noqa: PLR0911
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
        assigned = assignments(owner).get(name)
        if assigned is not None:
            scope = ExpressionScope(owner.file, owner=owner)
            made = default_of(self, self.value(assigned, scope), scope)
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
        """Return the result of a call; ``src`` is its ``file:line``."""
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
                default = receiver.arguments[0] if receiver.arguments else None
                return self.call(default, [], {}) if isinstance(default, FunctionValue) else default
            found = self.method(receiver.of, bound.name)
            return (
                self.run(found, [receiver, *positional], keywords) if found else OpaqueValue("call")
            )
        if isinstance(receiver, str | list | tuple | set | frozenset | dict):
            result = getattr(receiver, bound.name)(*positional, **keywords)
            return list(result) if bound.name in ("keys", "values", "items") else result
        return OpaqueValue("call")

    def run(self, function: FunctionValue, positional: list[Any], keywords: dict[str, Any]) -> Any:
        """Return a call's result; an OpaqueValue outside the package or if nested too deeply."""
        if self._depth > _DEPTH or not function.file.startswith(PACKAGE):
            return OpaqueValue(function.name)
        scope = ExpressionScope(function.file)
        scope.names.update(bind_parameters(self, function, positional, keywords))
        done = self.block(function.node.body, scope)
        return None if done is None else done[0]

    def block(self, body: list[ast.stmt], scope: ExpressionScope) -> tuple[Any] | None:
        """Run statements; return the first ``return`` value as a 1-tuple, or None without one."""
        for node in body:
            done = self.statement(node, scope)
            if done is not None:
                return done
        return None

    def statement(  # noqa: PLR0912
        self, node: ast.stmt, scope: ExpressionScope, only: str | None = None
    ) -> tuple[Any] | None:
        """Run a statement, binding only the name ``only`` if set. Return its ``return`` value as a
        1-tuple; None without one."""
        match node:
            case ast.Return():
                return (None if node.value is None else self.value(node.value, scope),)
            case ast.Assign():
                self._assign(node.targets, node.value, scope, only)
            case ast.AnnAssign(value=ast.expr() as value):
                self._assign([node.target], value, scope, only)
            case ast.AugAssign(target=ast.Name(id=name)):
                before = scope.names.get(name, OpaqueValue(name))
                after = self.value(node.value, scope)
                scope.names[name] = self._binary(node.op, before, after, node)
            case ast.FunctionDef():
                scope.names[node.name] = FunctionValue(scope.file, node)
            case ast.ClassDef():
                scope.names[node.name] = ClassValue(scope.file, node)
            case ast.ImportFrom():
                self._import(node, scope, only)
            case ast.Import():
                for alias in node.names:
                    local = alias.asname or alias.name.partition(".")[0]
                    scope.names[local] = OpaqueValue(alias.name if alias.asname else local)
            case ast.Expr():
                self.value(node.value, scope)
            case ast.If():
                return self._some(
                    node.body if self.value(node.test, scope) else node.orelse, scope, only
                )
            case ast.Try() | ast.With():
                return self._some(node.body, scope, only)
            case ast.For():
                return self._loop(node, scope)
            case _:
                pass
        return None

    def _some(
        self, body: list[ast.stmt], scope: ExpressionScope, only: str | None
    ) -> tuple[Any] | None:
        for node in body:
            if only is None or mentions(node, only):
                done = self.statement(node, scope, only)
                if done is not None:
                    return done
        return None

    def _loop(self, node: ast.For, scope: ExpressionScope) -> tuple[Any] | None:
        for item in self.items(self.value(node.iter, scope)):
            self._bind(node.target, item, scope)
            done = self.block(node.body, scope)
            if done is not None:
                return done
        return None

    def _assign(
        self, targets: list[ast.expr], value: ast.expr, scope: ExpressionScope, only: str | None
    ) -> None:
        result = self.value(value, scope)
        for target in targets:
            if only is None or not isinstance(target, ast.Name) or target.id == only:
                self._bind(target, result, scope)

    def _bind(self, target: ast.expr, value: Any, scope: ExpressionScope) -> None:
        if isinstance(target, ast.Name):
            scope.names[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            items = self.items(value)
            for part, item in zip(target.elts, [*items, *[OpaqueValue("?")] * 9], strict=False):
                self._bind(part, item, scope)

    def value(self, node: ast.expr, scope: ExpressionScope) -> Any:
        """Return the value of an expression; an OpaqueValue with its source text if unknown."""
        if self._depth > _DEPTH:
            return OpaqueValue(ast.unparse(node))
        self._depth += 1
        try:
            return self._value(node, scope)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError):
            return OpaqueValue(ast.unparse(node))
        finally:
            self._depth -= 1

    def _value(self, node: ast.expr, scope: ExpressionScope) -> Any:  # noqa: PLR0911, PLR0912
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self.lookup(node.id, scope)
            case ast.List():
                return self.elements(node.elts, scope)
            case ast.Tuple():
                return tuple(self.elements(node.elts, scope))
            case ast.Set():
                return set(self.elements(node.elts, scope))
            case ast.Dict():
                made: dict[Any, Any] = {}
                for key, item in zip(node.keys, node.values, strict=True):
                    if key is None:
                        made.update(self.value(item, scope))
                    else:
                        made[self.value(key, scope)] = self.value(item, scope)
                return made
            case ast.Attribute():
                return self.attribute(self.value(node.value, scope), node.attr)
            case ast.Call():
                return self._call(node, scope)
            case ast.BinOp():
                left, right = self.value(node.left, scope), self.value(node.right, scope)
                return self._binary(node.op, left, right, node)
            case ast.UnaryOp(op=ast.Not()):
                return not self.value(node.operand, scope)
            case ast.UnaryOp(op=ast.USub()):
                return -self.value(node.operand, scope)
            case ast.BoolOp():
                is_or = isinstance(node.op, ast.Or)
                result: Any = None
                for part in node.values:
                    result = self.value(part, scope)
                    if bool(result) is is_or:
                        break
                return result
            case ast.Compare():
                return self._compare(node, scope)
            case ast.IfExp():
                return self.value(node.body if self.value(node.test, scope) else node.orelse, scope)
            case ast.Subscript():
                return self.value(node.value, scope)[self.value(node.slice, scope)]
            case ast.JoinedStr():
                return "".join(str(self.value(part, scope)) for part in node.values)
            case ast.FormattedValue():
                return self.value(node.value, scope)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
                return self._comprehension(node, scope)
            case _:
                return OpaqueValue(ast.unparse(node))

    def elements(self, nodes: list[ast.expr], scope: ExpressionScope) -> list[Any]:
        """Return the values of list items or call arguments, with starred parts expanded."""
        made: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                made.extend(self.items(self.value(node.value, scope)))
            else:
                made.append(self.value(node, scope))
        return made

    def _binary(self, kind: ast.operator, left: Any, right: Any, node: ast.AST) -> Any:
        if (
            isinstance(left, OpaqueValue)
            or isinstance(right, OpaqueValue)
            or type(kind) not in _OPERATORS
        ):
            return OpaqueValue(ast.unparse(node))
        return _OPERATORS[type(kind)](left, right)

    def _compare(self, node: ast.Compare, scope: ExpressionScope) -> Any:
        left = self.value(node.left, scope)
        for kind, part in zip(node.ops, node.comparators, strict=True):
            right = self.value(part, scope)
            if isinstance(left, OpaqueValue) or isinstance(right, OpaqueValue):
                return OpaqueValue(ast.unparse(node))
            if not _COMPARISONS[type(kind)](left, right):
                return False
            left = right
        return True

    def _comprehension(
        self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, scope: ExpressionScope
    ) -> Any:
        inner = ExpressionScope(scope.file, dict(scope.names), scope.owner)
        made: list[Any] = []

        def nest(level: int) -> None:
            if level == len(node.generators):
                made.append(self.value(node.elt, inner))
                return
            clause = node.generators[level]
            for item in self.items(self.value(clause.iter, inner)):
                self._bind(clause.target, item, inner)
                if all(self.value(test, inner) for test in clause.ifs):
                    nest(level + 1)

        nest(0)
        return set(made) if isinstance(node, ast.SetComp) else made


def bind_parameters(
    evaluator: SourceEvaluator,
    function: FunctionValue,
    positional: list[Any],
    keywords: dict[str, Any],
) -> dict[str, Any]:
    """Return the parameters of a call by name; surplus keywords are under ``"**"``."""
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


def default_of(evaluator: SourceEvaluator, value: Any, scope: ExpressionScope) -> Any:
    """Return a field's default, unwrapped from ``field(default=…)`` or ``default_factory``."""
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
