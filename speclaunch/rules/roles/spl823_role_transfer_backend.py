"""Prefill and decode transfer the KV cache by different libraries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.roles.sides import Conflict, conflicts, is_side


def check(_plan: Plan) -> Iterator[Verdict]:
    """Nothing can be said of one server by itself."""
    return iter(())


def check_across(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """One verdict a decode server whose transfer backend is not that of prefill."""
    return conflicts(plans, _conflict)


_NAME = "disaggregation_transfer_backend"


def _conflict(prefill: Plan, decode: Plan) -> Conflict | None:
    theirs, ours = _library(prefill), _library(decode)
    if theirs == ours:
        return None
    return Conflict(
        f"{_NAME} is {ours} for decode and {theirs} for prefill",
        (_NAME,),
        "each library has a handshake of its own: requests wait until they time out",
        Fix(f"give both roles the same {_NAME}"),
    )


def _library(plan: Plan) -> str:
    """`mooncake_tcp` is mooncake over TCP (0.5.23 arg_groups/pd_disaggregation_hook.py:30)."""
    return str(plan.value(_NAME)).removesuffix("_tcp")


RULE = rule(
    "SPL823",
    "role-transfer-backend",
    Severity.ERROR,
    check,
    check_across=check_across,
    compares=is_side,
)
