"""Prefill and decode servers have no router before them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speclaunch.plan.plan import Plan
from speclaunch.rules.deployments.common import (
    around,
    grouped,
    is_in_container,
    value_or,
)
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(_plan: Plan) -> Iterator[Verdict]:
    """Nothing can be said of one server by itself."""
    return iter(())


def check_across(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """One verdict a deployment."""
    for group, members in grouped(plans):
        by_mode = {value_or(one, "disaggregation_mode"): one for one in reversed(members)}
        prefill, decode = by_mode.get("prefill"), by_mode.get("decode")
        if prefill is None or decode is None or group.routers or not is_in_container(prefill):
            continue
        yield (
            prefill,
            Verdict(
                "prefill and decode servers stand here without a router",
                at=("disaggregation_mode",),
                why="a request has to go to both with the same room and the prefill side's "
                "bootstrap address: neither answers what a client sends it",
                fix=Fix("add sglang_router with --pd-disaggregation, or name its file"),
                place=around(prefill).place,
                others=(around(decode).place,),
            ),
        )


RULE = rule(
    "SPL876",
    "missing-router",
    Severity.WARNING,
    check,
    check_across=check_across,
)
