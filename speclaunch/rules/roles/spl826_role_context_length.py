"""Decode takes shorter requests than prefill."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.models.common import served_context
from speclaunch.rules.roles.sides import Conflict, conflicts, is_side


def check(_plan: Plan) -> Iterator[Verdict]:
    """Nothing can be said of one server by itself."""
    return iter(())


def check_across(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """One verdict a decode server whose context is shorter than that of prefill."""
    return conflicts(plans, _conflict)


def _conflict(prefill: Plan, decode: Plan) -> Conflict | None:
    theirs, ours = served_context(prefill), served_context(decode)
    if theirs is None or ours is None or theirs <= ours:
        return None
    return Conflict(
        f"context_length is {ours} for decode and {theirs} for prefill",
        ("context_length", "model_path"),
        "prefill takes a request that decode refuses: it fails after its KV cache was computed",
        Fix("give both roles the same context_length"),
    )


RULE = rule(
    "SPL826",
    "role-context-length",
    Severity.WARNING,
    check,
    check_across=check_across,
    compares=is_side,
)
