"""Reads calls of what Python and its libraries bring along."""

from __future__ import annotations

import ast
from typing import Any

from refusal_reading import facts
from refusal_reading.methods import Methods
from refusal_reading.sources import ClassRef
from refusal_reading.values import (
    Args,
    Config,
    Items,
    Mapped,
    Member,
    Several,
    State,
    View,
)

_PURE = {"len", "int", "float", "str", "bool", "abs", "set", "sorted", "list", "tuple", "frozenset"}
_TYPES = {"str": "isstr", "int": "isint", "bool": "isbool", "list": "islist", "tuple": "islist"}
_TYPES |= {"dict": "isdict"}


class BuiltinCalls(Methods):
    """What a call of a function, or of a class, that is not the engine's own stands for."""

    def _quantified(self, name: str, one: ast.Call, state: State) -> Any:
        found = self.evaluate(one.args[0], state)
        parts = self.several(found)
        if parts is None and isinstance(found, int) and name == "any":
            node = self.store.nodes[found]
            if node[0] == "meets":
                return found
        if parts is None:
            return self.unknown(f"{name}()")
        truths = [
            self.store.conjunction([c, self.truth_of(v)])
            if name == "any"
            else self.store.disjunction([self.store.make("not", c), self.truth_of(v)])
            for c, v in parts
        ]
        return self.store.disjunction(truths) if name == "any" else self.store.conjunction(truths)

    def _class(self, ref: ClassRef, args: list[Any]) -> Any:
        if ref.name in facts.VIEWS:
            return View()
        if any("Enum" in base or base == "str" for base in ref.bases) and args:
            return self.node(args[0])
        return self.unknown(f"an object of {ref.name}")

    def _foreign(self, name: str, args: list[Any], named: dict[str, Any], state: State) -> Any:
        last = name.rpartition(".")[2]
        if last == "get_device_capability":
            return self._capability()
        if not args and not named and last in facts.PLATFORM:
            return self.platform(last)
        if name == "isinstance":
            return self._isinstance(args)
        if name in ("getattr", "hasattr", "setattr"):
            return self._attribute_function(name, args, state)
        if name in ("min", "max") and len(args) > 1:
            found = self.node(args[0])
            for other in args[1:]:
                found = self.store.make(name, found, self.node(other))
            return found
        if name == "dict" and not args:
            return Mapped(tuple(named.items()))
        first = args[0] if args else None
        if name in ("dict", "list", "tuple") and isinstance(first, Mapped | Items | Several):
            return first
        if name in ("set", "frozenset", "sorted") and isinstance(first, Items | Several):
            return self._collected(name, first)
        if name in ("list", "set") and not args:
            return Items()
        if name in _PURE and len(args) == 1:
            op = {"sorted": "set", "list": "set", "tuple": "set", "frozenset": "set"}.get(
                name, name
            )
            if op == "set" and name != "set":
                return self.unknown(name)
            if isinstance(args[0], Items | Several) and name == "len":
                parts = self.several(args[0]) or []
                if all(c == self.store.true for c, _ in parts):
                    return self.store.const(len(parts))
            return self.store.make(op, self.node(args[0]))
        if name in ("os.getenv", "os.environ.get"):
            return self._environ_method("get", args)
        return self.unknown(f"{name}()")

    def _collected(self, name: str, held: Items | Several) -> Any:
        """A set or a sorted list, of constants alone."""
        parts = self.several(held) or []
        nodes = [value for condition, value in parts if condition == self.store.true]
        if len(nodes) < len(parts) or not all(
            isinstance(one, int) and self.store.is_const(one) for one in nodes
        ):
            return self.unknown(name)
        distinct = list(dict.fromkeys(nodes)) if name != "sorted" else nodes
        if name == "sorted":
            distinct.sort(key=lambda one: str(self.store.value(one)))
        return Several(tuple(distinct))

    def _isinstance(self, args: list[Any]) -> Any:
        kinds = [one for _, one in self.several(args[1]) or [(0, args[1])]]
        names = [getattr(kind, "name", "") for kind in kinds]
        if isinstance(args[0], int) and all(name in _TYPES for name in names):
            tests = [self.store.make(_TYPES[name], args[0]) for name in names]
            return self.store.disjunction(tests)
        if isinstance(args[0], View) and all("Resolv" in name for name in names):
            return self.store.true
        if isinstance(args[0], Args | Member):
            return self.store.false
        if isinstance(args[0], Config) and names == ["dict"]:
            return self.store.false  # what is read is an object of transformers
        return self.unknown("isinstance()")

    def _attribute_function(self, name: str, args: list[Any], state: State) -> Any:
        key = args[1] if len(args) > 1 else None
        literal = (
            self.store.value(key) if isinstance(key, int) and self.store.is_const(key) else None
        )
        if name == "setattr":
            if isinstance(args[0], Args) and isinstance(literal, str):
                self.write_field(literal, self.node(args[2]), state)
            elif isinstance(args[0], Args):
                self.forget_all("setattr() of any field", state)
            return self.store.none
        if not isinstance(literal, str):
            return self.unknown(f"{name}() of any name")
        if name == "hasattr":
            if isinstance(args[0], Args | View) and self.is_field(literal):
                return self.store.true
            return self.unknown("hasattr()")
        default = args[2] if len(args) > 2 else None
        if isinstance(args[0], Config) and literal not in (*facts.ABSENT_IS_NONE, "architectures"):
            return self.store.leaf("h", literal, *(["text"] if args[0].text else []))
        return self.attribute(args[0], literal, state, default)
