"""Expressions as numbered nodes: equal ones are one node, made once.

A node is `(operator, operand, …)`. Operands are numbers of other nodes, but for the leaves:

``k value``            a constant: None, a scalar, or a list of scalars
``f name``             an argument as it was given, else the default of the release's parser
``e name kind default``  an environment variable: bool, int, float, str; raw is its text or None
``p name``             a fact of the platform: is_cuda, device_sm, …
``h key``              a key of the target's config.json; `text` before it: of its text_config
``a``                  the target's architectures
``u why``              what cannot be read

`and`, `or`, `not` and `?` (condition, then, else) are Python's own.
`speclaunch/engine/plan/refusals` evaluates them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

LEAVES = frozenset("kfephaumq")
COMPARISONS = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
Node = tuple[Any, ...]


class Store:
    """All expressions of one reading."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._ids: dict[Any, int] = {}
        self._filled: dict[tuple[int, int], int] = {}
        self._open: dict[int, bool] = {}
        self.true = self.const(True)
        self.false = self.const(False)
        self.none = self.const(None)
        self.missing = self._intern(("m",))
        """Stands for what an older value is: never left in a finished expression."""

    def const(self, value: Any) -> int:
        """A constant; tuples and sets become lists."""
        if isinstance(value, tuple | set | frozenset):
            value = sorted(value, key=str) if isinstance(value, set | frozenset) else list(value)
        return self._intern(("k", value))

    def unknown(self, why: str) -> int:
        """What cannot be read."""
        return self._intern(("u", why))

    def leaf(self, op: str, *values: Any) -> int:
        """A leaf other than a constant."""
        return self._intern((op, *values))

    def is_const(self, node: int) -> bool:
        """Whether it is a constant."""
        return bool(self.nodes[node][0] == "k")

    def value(self, node: int) -> Any:
        """The value of a constant."""
        return self.nodes[node][1]

    def make(self, op: str, *args: int) -> int:
        """An expression of others, simplified where that changes nothing."""
        if op == "and":
            return self._junction("and", args, self.true, self.false)
        if op == "or":
            return self._junction("or", args, self.false, self.true)
        if op == "not":
            return self._not(args[0])
        if op == "?":
            return self._choice(*args)
        if all(self.is_const(one) for one in args):
            folded = fold(op, [self.value(one) for one in args])
            if folded is not fold:
                return self.const(folded)
        if any(self.nodes[one][0] == "u" for one in args) and op not in ("fmt", "list"):
            return next(one for one in args if self.nodes[one][0] == "u")
        return self._intern((op, *args))

    def conjunction(self, args: Iterable[int]) -> int:
        """`and` whose value nobody looks at but for its truth."""
        kept: list[int] = []
        for one in args:
            parts = self.nodes[one][1:] if self.nodes[one][0] == "and" else (one,)
            for part in parts:
                if self.is_const(part):
                    if not self.value(part):
                        return self.false
                elif part not in kept:
                    kept.append(part)
        if not kept:
            return self.true
        if any(self._not(one) in kept for one in kept):
            return self.false
        return kept[0] if len(kept) == 1 else self._intern(("and", *kept))

    def disjunction(self, args: Iterable[int]) -> int:
        """`or` whose value nobody looks at but for its truth."""
        return self._not(self.conjunction([self._not(one) for one in args]))

    def filled(self, node: int, default: int) -> int:
        """A chain of choices with `missing` at its end replaced."""
        if not self.has_missing(node):
            return node
        if node == self.missing:
            return default
        key = (node, default)
        if key not in self._filled:
            _, condition, then, other = self.nodes[node]
            self._filled[key] = self._choice(
                condition, self.filled(then, default), self.filled(other, default)
            )
        return self._filled[key]

    def has_missing(self, node: int) -> bool:
        """Whether a chain of choices has `missing` at an end."""
        found = self.nodes[node]
        if found[0] != "?":
            return node == self.missing
        if node not in self._open:
            self._open[node] = self.has_missing(found[3]) or self.has_missing(found[2])
        return self._open[node]

    def reached(self, node: int) -> set[int]:
        """Every node that an expression is made of."""
        found: set[int] = set()
        waiting = [node]
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                if self.nodes[one][0] not in LEAVES:
                    waiting += self.nodes[one][1:]
        return found

    def _junction(self, op: str, args: tuple[int, ...], neutral: int, final: int) -> int:
        kept: list[int] = []
        for index, one in enumerate(args):
            if self.is_const(one):
                if bool(self.value(one)) == bool(self.value(final)):
                    kept.append(one)
                    break
                if index < len(args) - 1:
                    continue
            kept.append(one)
        if not kept:
            return neutral
        return kept[0] if len(kept) == 1 else self._intern((op, *kept))

    def _not(self, one: int) -> int:
        found = self.nodes[one]
        if found[0] == "k":
            return self.const(not found[1])
        if found[0] == "u":
            return one
        if found[0] == "not":
            return int(found[1])
        if found[0] == "==":
            return self._intern(("!=", *found[1:]))
        if found[0] == "!=":
            return self._intern(("==", *found[1:]))
        return self._intern(("not", one))

    def _choice(self, condition: int, then: int, other: int) -> int:
        if self.is_const(condition):
            return then if self.value(condition) else other
        if then == other:
            return then
        if self.nodes[condition][0] == "not":
            return self._choice(self.nodes[condition][1], other, then)
        found = self.nodes[other]
        if found[0] == "?" and found[1] == condition:
            return self._choice(condition, then, found[3])
        return self._intern(("?", condition, then, other))

    def _intern(self, node: Node) -> int:
        key = repr(node)
        if key not in self._ids:
            self._ids[key] = len(self.nodes)
            self.nodes.append(node)
        return self._ids[key]


def fold(op: str, values: list[Any]) -> Any:
    """The value of an operation on constants; this function itself where there is none."""
    from speclaunch.engine.plan.refusals import OPERATIONS, TEXTS  # noqa: PLC0415

    try:
        if op in OPERATIONS:
            return OPERATIONS[op](*values)
        if op in TEXTS:
            return TEXTS[op](*values)
        if op == "list":
            return list(values)
    except (TypeError, ValueError, ZeroDivisionError, AttributeError, KeyError, IndexError):
        return fold
    return fold
