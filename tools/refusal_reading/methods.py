"""Reads calls of what values bring along: texts, mappings, variables of the environment."""

from __future__ import annotations

import ast
from typing import Any

from refusal_reading import facts
from refusal_reading.operators import Operators
from refusal_reading.sources import FunctionRef
from refusal_reading.values import (
    Args,
    Config,
    Environ,
    Items,
    Mapped,
    Member,
    Method,
    Model,
    Overrides,
    Several,
    State,
    Variable,
    View,
)

_METHODS = {
    *("lower", "upper", "strip", "startswith", "endswith", "split", "partition", "replace"),
    "get",
}


class Methods(Operators):
    """What a method of a value stands for."""

    def _method(self, method: Method, args: list[Any], named: dict[str, Any], state: State) -> Any:
        owner, name = method.of, method.name
        if isinstance(owner, Member):
            member = owner.owner.member(name)
            if isinstance(member, ast.FunctionDef):
                ref = FunctionRef(owner.owner.module, member, owner.owner)
                kinds = [ast.unparse(d) for d in member.decorator_list]
                return self.inline(ref, [owner, *args] if not kinds else args, named, state)
            return self.unknown(f"method {name}() of a member")
        if isinstance(owner, Args | View):
            member = self.record.member(name)
            if name == "get_model_config":
                return Model()
            if name == "get_hf_config":
                return Config()
            if name in facts.UNREAD:
                return self.unknown(f"{name}()")
            if isinstance(member, ast.FunctionDef):
                static = any(ast.unparse(d) == "staticmethod" for d in member.decorator_list)
                first: list[Any] = [] if static else [owner]
                ref = FunctionRef(self.server_args, member, self.record)
                return self.inline(ref, [*first, *args], named, state)
            if name == "_resolved_overrides":
                return self.unknown("the stash")
            return self.unknown(f"method {name}()")
        if isinstance(owner, Method) and owner.name == "_resolved_overrides" and name == "extend":
            if args and isinstance(args[0], Overrides):
                self.declare_overrides(args[0], state)
            else:
                self.forget_all("what is stashed", state)
            return self.store.none
        if isinstance(owner, Variable):
            return self._variable_method(owner, name, args, state)
        if isinstance(owner, Environ):
            return self._environ_method(name, args)
        if isinstance(owner, Items) and name in ("append", "extend", "add"):
            return self.unknown("a list without a name")
        if isinstance(owner, Mapped):
            return self._mapped_method(owner, name, args)
        if isinstance(owner, Config) and name == "get":
            return self.unknown("a key of the config")
        if isinstance(owner, int):
            return self._value_method(owner, name, args)
        return self.unknown(f"method {name}()")

    def _value_method(self, owner: int, name: str, args: list[Any]) -> Any:
        if name in _METHODS:
            return self.store.make(name, owner, *(self.node(one) for one in args))
        if name == "join" and args:
            parts = self.several(args[0])
            if parts is None or not self.store.is_const(owner):
                return self.unknown("a joined text")
            glue: list[int] = []
            for index, (condition, value) in enumerate(parts):
                if condition != self.store.true:
                    value = self.store.unknown("")  # noqa: PLW2901
                glue += [owner] * bool(index) + [self.node(value)]
            return self.store.make("fmt", *glue)
        if name == "format":
            return self.store.make("fmt", owner)
        return self.unknown(f"method {name}()")

    def _mapped_method(self, owner: Mapped, name: str, args: list[Any]) -> Any:
        if name == "get" and args and isinstance(args[0], int) and self.store.is_const(args[0]):
            found = owner.get(self.store.value(args[0]))
            fallback = args[1] if len(args) > 1 else self.store.none
            if found is None:
                return fallback
            return (
                self.store.filled(found, self.node(fallback)) if isinstance(found, int) else found
            )
        if name == "get" and args:
            found = args[1] if len(args) > 1 else self.store.none
            for key, value in owner.entries:
                same = self.store.make("==", self.node(args[0]), self.store.const(key))
                found = self.store.make("?", same, self.node(value), self.node(found))
            return found
        if name == "items":
            return Several(tuple(Several((self.store.const(k), v)) for k, v in owner.entries))
        if name == "keys":
            return Several(tuple(self.store.const(key) for key, _ in owner.entries))
        if name == "values":
            return Several(tuple(value for _, value in owner.entries))
        return self.unknown(f"a dict's {name}()")

    def _variable_method(self, owner: Variable, name: str, args: list[Any], state: State) -> Any:
        key = f"E:{owner.name}"
        if name == "set":
            state.fields[key] = self.node(args[0]) if args else self.unknown("a variable")
            return self.store.none
        written = state.fields.get(key, self.store.missing)
        if name == "is_set":
            if written != self.store.missing:
                return self.unknown("a variable that validation sets")
            raw = self.variable(owner.name, "raw", None)
            return self.store.make("not", self.store.make("none", raw))
        declared = self.declared_variable(owner.name)
        if name != "get" or declared is None:
            return self.unknown("a variable's default")
        return self.store.filled(written, self.variable(owner.name, *declared))

    def _environ_method(self, name: str, args: list[Any]) -> Any:
        literal = [
            self.store.value(a) for a in args if isinstance(a, int) and self.store.is_const(a)
        ]
        if name == "get" and literal and len(literal) == len(args):
            return self.variable(literal[0], "str", literal[1] if len(literal) > 1 else None)
        return self.unknown("os.environ")

    def _bool_variable(self, args: list[Any], named: dict[str, Any]) -> Any:
        values = [*args, *named.values()]
        if not all(isinstance(a, int) and self.store.is_const(a) for a in values):
            return self.unknown("a variable")
        literal = [self.store.value(a) for a in values]
        default = str(literal[1]).lower() in ("true", "1") if len(literal) > 1 else False
        return self.variable(literal[0], "bool", default)

    # Python's own ----------------------------------------------------------------------------
