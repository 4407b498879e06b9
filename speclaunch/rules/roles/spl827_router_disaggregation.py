"""The router and its servers do not agree on whether there are prefill and decode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.roles.routers import (
    has_router,
    is_disaggregated,
    place_of_switch,
    routed,
)
from speclaunch.rules.roles.sides import DECODE, PREFILL, mode, place_of
from speclaunch.surroundings import Router


def check(_plan: Plan) -> Iterator[Verdict]:
    """Nothing can be said of one server by itself."""
    return iter(())


def check_across(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """One verdict a router that expects other servers than there are."""
    for found in routed(plans):
        told = is_disaggregated(found.router)
        sides = [mode(plan) for plan in found.plans]
        if told is False and {PREFILL, DECODE} <= {*sides}:
            yield _verdict(
                found.plans[sides.index(PREFILL)],
                "the router is not told of prefill and decode",
                "it takes each of them for a whole server, and both refuse a request without the "
                "address of its partner: Disaggregated request received without bootstrap room id",
                "pass --pd-disaggregation with --prefill and --decode to the router",
                found.router,
            )
        elif told and not {PREFILL, DECODE} & {*sides}:
            yield _verdict(
                found.plans[0],
                "the router expects prefill and decode, and no server is either",
                "it sends each request to a pair, and a server without disaggregation_mode knows "
                "of no partner",
                "set disaggregation_mode of the servers, or remove --pd-disaggregation",
                found.router,
            )


def _verdict(plan: Plan, message: str, why: str, fix: str, router: Router) -> tuple[Plan, Verdict]:
    others = (place_of(plan, ("disaggregation_mode",)),)
    return plan, Verdict(
        message, why=why, fix=Fix(fix), place=place_of_switch(router), others=others
    )


RULE = rule(
    "SPL827",
    "router-disaggregation",
    Severity.WARNING,
    check,
    check_across=check_across,
    compares=has_router,
)
