"""Two servers on the network of one host take the same port."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speclaunch.plan.plan import Plan
from speclaunch.rules.deployments.common import (
    COMPOSE,
    around,
    grouped,
    in_kubernetes,
    is_in_container,
    is_on,
    serves_http,
    value_or,
    whole,
    written,
)
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(_plan: Plan) -> Iterator[Verdict]:
    """Nothing can be said of one server by itself."""
    return iter(())


def check_across(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """One verdict a server whose port another one has before it."""
    for group, members in grouped(plans):
        taken: dict[object, Plan] = {}
        for plan in members:
            port = value_or(plan, "port")
            if port is None or not _is_on_the_host(plan):
                continue
            first = taken.setdefault(port, plan)
            if first is plan or _are_kept_apart(first, plan, port):
                continue
            sure = group.platform == COMPOSE
            yield (
                plan,
                Verdict(
                    f"{plan.request.name} and {first.request.name} listen on port {port} of the "
                    "host's network",
                    at=("port",),
                    why="the second one fails: address already in use"
                    + ("" if sure else ", where both come to one node"),
                    fix=Fix("give each its own port"),
                    others=(*written(plan, "port"), *written(first, "port")),
                    severity=Severity.ERROR if sure else None,
                ),
            )


def _is_on_the_host(plan: Plan) -> bool:
    network = around(plan).pod.host_network
    return is_on(network) and serves_http(plan) and is_in_container(plan)


def _are_kept_apart(first: Plan, plan: Plan, port: object) -> bool:
    """Whether no node runs both: ranks of one server have a node each, and pods that name the port
    of a host are not scheduled to a node where it is taken."""
    if around(first).part != around(plan).part and around(first).role == around(plan).role:
        return True
    named = all(port in [whole(p) for p in around(one).pod.ports] for one in (first, plan))
    return named and in_kubernetes(plan)


RULE = rule(
    "SPL871",
    "shared-host-port",
    Severity.WARNING,
    check,
    also={Severity.ERROR: "in Compose, which has one host"},
    check_across=check_across,
)
