"""A router asks a server at a port that it does not listen on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speclaunch.plan.plan import Plan
from speclaunch.rules.deployments.common import grouped, value_or, whole, written
from speclaunch.rules.deployments.targets import Target, target_of
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.surroundings import Service, Upstream


def check(_plan: Plan) -> Iterator[Verdict]:
    """Nothing can be said of one server by itself."""
    return iter(())


def check_across(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """One verdict an upstream."""
    for group, members in grouped(plans):
        for router in group.routers:
            for upstream in router.upstreams:
                target = target_of(upstream.host, group, members)
                if target is not None and target.service is not None:  # SPL828 has the others
                    yield from _wrong(router.name, upstream, target, target.service)


def _wrong(
    router: str, upstream: Upstream, target: Target, service: Service
) -> Iterator[tuple[Plan, Verdict]]:
    port = whole(upstream.port)
    if port is None or upstream.port is None:
        return
    plan = target.plans[0]
    listens = {value_or(one, "port") for one in target.plans}
    behind = target.port_behind(port)
    if target.leads_on(port) and (behind is None or behind in listens or None in listens):
        return
    has = f"the server listens on {value_or(plan, 'port')}"
    if not target.leads_on(port):
        has = f"the Service {service.name} has no such port"
    yield (
        plan,
        Verdict(
            f"the router {router} asks {upstream.host} at port {port} and {has}",
            why="connection refused: the router counts the server as unhealthy and sends it "
            "nothing",
            fix=Fix("give the router the port that leads to the server"),
            place=upstream.port.place,
            others=(*written(plan, "port"), service.place),
        ),
    )


RULE = rule(
    "SPL872",
    "router-upstream",
    Severity.ERROR,
    check,
    check_across=check_across,
)
