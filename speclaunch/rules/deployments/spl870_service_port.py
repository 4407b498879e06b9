"""A Service leads to a port that no server listens on."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.deployments.common import (
    around,
    http_port,
    in_kubernetes,
    is_worker,
    matches,
    serves_http,
    whole,
)
from speclaunch.rules.deployments.ports import known_ports
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.surroundings import Service, Setting


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a Service that picks the pod and none of its ports."""
    if not in_kubernetes(plan) or not serves_http(plan) or is_worker(plan):
        return
    for service in around(plan).group.services:
        if matches(service.selector, around(plan).pod.labels) and not service.headless:
            yield from _of_service(plan, service)


def _of_service(plan: Plan, service: Service) -> Iterator[Verdict]:
    targets = [outer if inner is None else inner for outer, inner in service.ports]
    numbers = [whole(one) for one in targets]
    if not numbers or None in numbers or http_port(plan) in numbers:
        return
    if known_ports(plan) & set(numbers):
        return
    yield _verdict(plan, service, targets[0])


def _verdict(plan: Plan, service: Service, target: Setting) -> Verdict:
    port = http_port(plan)
    named = {whole(one) for one in around(plan).pod.ports}
    # a port that this container does not name may be that of a container beside it
    sure = not named or target.value in named
    return Verdict(
        f"the Service {service.name} leads to port {target.value} and the server listens on {port}",
        at=("port",),
        why="connection refused for every request through the Service",
        fix=Fix(f"set targetPort to {port}"),
        place=target.place,
        others=() if plan.is_given("port") else (plan.request.place,),
        severity=None if sure else Severity.WARNING,
    )


RULE = rule(
    "SPL870",
    "service-port",
    Severity.ERROR,
    check,
    also={Severity.WARNING: "where another container may listen there"},
)
