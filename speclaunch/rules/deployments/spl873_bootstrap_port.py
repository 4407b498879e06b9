"""Decode servers look for a prefill server's bootstrap at a port that leads nowhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speclaunch.plan.plan import Plan
from speclaunch.rules.deployments.common import grouped, value_or, written
from speclaunch.rules.deployments.targets import Target, target_of
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.surroundings import Upstream

_PORT = "disaggregation_bootstrap_port"


def check(_plan: Plan) -> Iterator[Verdict]:
    """Nothing can be said of one server by itself."""
    return iter(())


def check_across(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """One verdict a prefill server that a router is told of."""
    for group, members in grouped(plans):
        for router in group.routers:
            for upstream in router.upstreams:
                target = target_of(upstream.host, group, members)
                if upstream.role == "prefill" and target is not None:
                    yield from _wrong(upstream, target)


def _wrong(upstream: Upstream, target: Target) -> Iterator[tuple[Plan, Verdict]]:
    plan = target.plans[0]
    serves = value_or(plan, _PORT)
    if not isinstance(serves, int) or target.service is None or target.leads_on(serves):
        return
    yield (
        plan,
        Verdict(
            f"the Service {target.service.name} does not lead to the bootstrap port {serves}",
            why="decode connects to the host that the router was told of, at that port: "
            "connection refused",
            fix=Fix(f"add port {serves} to the Service"),
            place=target.service.place,
            others=(*written(plan, _PORT), upstream.place),
        ),
    )


RULE = rule(
    "SPL873",
    "bootstrap-port",
    Severity.ERROR,
    check,
    check_across=check_across,
)
