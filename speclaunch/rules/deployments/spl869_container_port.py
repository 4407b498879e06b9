"""The ports of a container lack the one that its server listens on."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.deployments.common import (
    around,
    http_port,
    in_compose,
    is_in_container,
    is_on,
    is_worker,
    serves_http,
    whole,
)
from speclaunch.rules.deployments.ports import known_ports
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for a container that names ports, and no port of its server."""
    pod = around(plan).pod
    if not pod.ports or not is_in_container(plan) or not serves_http(plan) or is_worker(plan):
        return
    if in_compose(plan) and is_on(pod.host_network):
        return
    named = [whole(one) for one in pod.ports]
    if None in named or http_port(plan) in named or known_ports(plan) & set(named):
        return
    shown = ", ".join(str(one) for one in named)
    yield Verdict(
        f"the container names port {shown} and the server listens on {http_port(plan)}",
        at=("port",),
        why="what is published or looked up by that port reaches no listener",
        fix=Fix(f"name port {http_port(plan)}, or set port to {named[0]}"),
        place=pod.ports[0].place,
        others=() if plan.is_given("port") else (plan.request.place,),
    )


RULE = rule("SPL869", "container-port", Severity.WARNING, check)
