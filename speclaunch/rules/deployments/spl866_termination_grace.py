"""A server is killed before it can end by itself."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.plan.topics.shutdown import least_seconds
from speclaunch.rules.deployments.common import around, is_in_container, number, serves_http
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for a grace period that is written and too short."""
    written = around(plan).pod.grace
    grace = number(written)
    if written is None or grace is None or not is_in_container(plan) or not serves_http(plan):
        return
    least = least_seconds(plan)
    if grace >= least:
        return
    yield Verdict(
        f"the server is killed {grace:g} s after SIGTERM and needs up to {least} s to end with "
        "no request at all",
        why="it looks for the signal every 5 s, lets all requests finish, then waits for its "
        "schedulers; what is killed sooner cuts off answers",
        fix=Fix("give it the time of the longest request: 300 s"),
        place=written.place,
    )


RULE = rule("SPL866", "termination-grace", Severity.WARNING, check)
