"""The router is told of other ports than the servers listen on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speclaunch.errors import Place
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.roles.routers import has_router, routed
from speclaunch.rules.roles.sides import PREFILL, mode, place_of
from speclaunch.surroundings import Setting, Upstream

_BOOTSTRAP = "disaggregation_bootstrap_port"


def check(_plan: Plan) -> Iterator[Verdict]:
    """Nothing can be said of one server by itself."""
    return iter(())


def check_across(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """One verdict a port of the router's that no server of the role has."""
    for found in routed(plans):
        for upstream in found.router.upstreams:
            servers = [one for one in found.plans if _fits(one, upstream)]
            if upstream.bootstrap is not None:
                yield from _compared(upstream.bootstrap, servers, _BOOTSTRAP, upstream)
            if upstream.port is not None and not found.services:
                yield from _compared(upstream.port, servers, "port", upstream)


def _fits(plan: Plan, upstream: Upstream) -> bool:
    around = plan.request.surroundings
    if around is not None and around.part == "worker":
        return False  # a rank that serves no requests
    if upstream.role != PREFILL:
        return mode(plan) == (upstream.role if upstream.role == "decode" else None)
    return mode(plan) == PREFILL


def _compared(
    said: Setting, servers: Sequence[Plan], name: str, upstream: Upstream
) -> Iterator[tuple[Plan, Verdict]]:
    if not said.known or not servers:
        return
    try:
        ports = {server.value(name) for server in servers}
    except UnknownValueError:
        return
    if str(said.value) in {str(port) for port in ports}:
        return
    listening = ", ".join(sorted(str(port) for port in ports))
    yield (
        servers[0],  # same either way: the places are given
        Verdict(
            f"the router is told of {name} {said.value} for {upstream.role}, and the servers "
            f"have {listening}",
            why="decode asks for the ranks of prefill at this port, where no server listens"
            if name == _BOOTSTRAP
            else "the router finds no server there",
            fix=Fix(f"give the router {listening}"),
            place=said.place,
            others=tuple(_places(servers, name)),
        ),
    )


def _places(servers: Sequence[Plan], name: str) -> Iterator[Place]:
    for server in servers:
        yield place_of(server, (name,))


RULE = rule(
    "SPL828",
    "router-ports",
    Severity.ERROR,
    check,
    check_across=check_across,
    compares=has_router,
)
