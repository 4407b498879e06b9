"""Evaluates the engine's conditions for a plan: three-valued, and without `eval`.

A node is `[operator, operand, …]`, operands are numbers of earlier nodes (but those of the leaves):
see `docs/explanation/refusals.md`. What is not known makes a condition unknown unless the rest
decides it; unknown is no finding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from speclaunch.plan.plan import Plan
from speclaunch.plan.refusals.leaves import UNKNOWN, Unknown, leaf
from speclaunch.plan.refusals.operations import OPERATIONS, TEXTS

_LEAVES: Final = frozenset("kufephaq")
_WAYS: Final = frozenset({"?", "not", "and", "or"})
_FAILS = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError)
"""What the engine itself would stumble over: no verdict of ours."""


class Evaluator:
    """The values of nodes for one plan; each is computed once."""

    def __init__(self, nodes: Sequence[Sequence[Any]], plan: Plan) -> None:
        self._nodes = nodes
        self._plan = plan
        self._values: dict[int, Any] = {}
        self._truths: dict[int, bool | None] = {}

    def holds(self, node: int) -> bool | None:
        """Whether a condition holds; None: nobody knows."""
        try:
            return self._truth(node)
        except RecursionError:
            return None

    def text(self, node: int) -> str:
        """A message, with `…` for what is not known."""
        found = self._nodes[node]
        if found[0] == "fmt":
            return "".join(self.text(part) for part in found[1:])
        shown = found[0] == "repr"
        value = self.value(found[1] if shown else node)
        if isinstance(value, Unknown):
            return "…"
        return repr(value) if shown else str(value)

    def value(self, node: int) -> Any:
        """The value of a node; UNKNOWN."""
        if node not in self._values:
            self._values[node] = self._value(self._nodes[node])
        return self._values[node]

    def _truth(self, node: int) -> bool | None:
        if node not in self._truths:
            self._truths[node] = self._truth_of(node)
        return self._truths[node]

    def _truth_of(self, node: int) -> bool | None:
        found = self._nodes[node]
        match found[0]:
            case "and" | "or":
                return self._junction(found, final=found[0] == "or")
            case "not":
                inner = self._truth(found[1])
                return None if inner is None else not inner
            case "?":
                return self._chosen_truth(found)
        value = self.value(node)
        return None if isinstance(value, Unknown) else bool(value)

    def _junction(self, found: Sequence[Any], *, final: bool) -> bool | None:
        """The first that decides does; else unknown, if one of them is."""
        unknown = False
        for part in found[1:]:
            truth = self._truth(part)
            if truth is final:
                return final
            unknown = unknown or truth is None
        return None if unknown else not final

    def _chosen_truth(self, found: Sequence[Any]) -> bool | None:
        condition = self._truth(found[1])
        if condition is not None:
            return self._truth(found[2] if condition else found[3])
        then, other = self._truth(found[2]), self._truth(found[3])
        return then if then is other else None

    def _value(self, found: Sequence[Any]) -> Any:
        op = found[0]
        if op in _LEAVES:
            return leaf(self._plan, found)
        if op in _WAYS:
            return self._way(found)
        values = [self.value(part) for part in found[1:]]
        if any(isinstance(value, Unknown) for value in values):
            return UNKNOWN
        try:
            if op == "list":
                return values
            return (OPERATIONS.get(op) or TEXTS[op])(*values)
        except _FAILS:
            return UNKNOWN

    def _way(self, found: Sequence[Any]) -> Any:
        """The value of what does not need all of its operands."""
        if found[0] == "?":
            return self._chosen(found)
        if found[0] == "not":
            truth = self._truth(found[1])
            return UNKNOWN if truth is None else not truth
        return self._junction_value(found, final=found[0] == "or")

    def _chosen(self, found: Sequence[Any]) -> Any:
        condition = self._truth(found[1])
        if condition is not None:
            return self.value(found[2] if condition else found[3])
        then, other = self.value(found[2]), self.value(found[3])
        same = type(then) is type(other) and then == other
        return then if same else UNKNOWN

    def _junction_value(self, found: Sequence[Any], *, final: bool) -> Any:
        """The operand that Python's `and` or `or` gives."""
        value: Any = UNKNOWN
        for part in found[1:]:
            value = self.value(part)
            if isinstance(value, Unknown) or bool(value) is final:
                return value
        return value
