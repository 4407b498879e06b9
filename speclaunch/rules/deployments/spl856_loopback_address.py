"""A server in a container listens on its loopback address alone."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.errors import Place
from speclaunch.plan.plan import Plan
from speclaunch.rules.deployments.common import (
    around,
    in_compose,
    in_kubernetes,
    is_on,
    is_worker,
    matches,
    probes,
    serves_http,
)
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where somebody comes from outside."""
    if not serves_http(plan) or plan.value("host") not in _LOOPBACK:
        return
    from_outside = tuple(_visitors(plan))
    if not from_outside:
        return
    given = "host is" if plan.is_given("host") else "host is left out, and"
    yield Verdict(
        f"the server listens on {plan.value('host')}, where nothing outside of its container "
        "reaches it",
        at=("host",),
        why=f"{given} the loopback address; a kubelet, a Service and a published port come from "
        "outside: connection refused",
        fix=Fix("set host to 0.0.0.0"),
        others=from_outside,
    )


def _visitors(plan: Plan) -> Iterator[Place]:
    """The first of each: probes of a kubelet, Services, ports that Compose publishes."""
    pod = around(plan).pod
    if in_kubernetes(plan):
        asked = (one.place for one in probes(plan) if not one.command and one.host is None)
        yield from asked
        if not is_worker(plan):
            services = around(plan).group.services
            yield from (one.place for one in services if matches(one.selector, pod.labels))
    elif in_compose(plan) and not is_on(pod.host_network):
        yield from (one.place for one in pod.ports)


RULE = rule("SPL856", "loopback-address", Severity.ERROR, check)
