"""Decode has other pipeline stages than prefill."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.roles.sides import Conflict, conflicts, is_side


def check(_plan: Plan) -> Iterator[Verdict]:
    """Nothing can be said of one server by itself."""
    return iter(())


def check_across(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """One verdict a decode server whose pipeline stages do not fit those of prefill."""
    return conflicts(plans, _conflict)


def _conflict(prefill: Plan, decode: Plan) -> Conflict | None:
    theirs, ours = prefill.value("pp_size"), decode.value("pp_size")
    if ours in (1, theirs):
        return None
    return Conflict(
        f"pp_size is {ours} for decode and {theirs} for prefill",
        ("pp_size",),
        f"each request fails: AssertionError: Decode pp size ({ours}) should be equal to prefill "
        f"pp size ({theirs}) or 1",
        Fix("set pp_size of decode to 1, or to that of prefill"),
    )


RULE = rule(
    "SPL825",
    "role-pipeline-stages",
    Severity.ERROR,
    check,
    check_across=check_across,
    compares=is_side,
    versions=">=0.5.10",
    says=("Decode pp size ({}) should be equal to prefill pp size",),
)
