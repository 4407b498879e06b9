"""The hosts of one server meet at an address that is each host's own."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.deployments.common import (
    around,
    gives_ranks,
    hosts,
    in_compose,
    is_on,
)
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_OWN = ("127.0.0.1", "localhost", "::1", "0.0.0.0")  # noqa: S104
_NAME = "dist_init_addr"
_FIX = Fix("give all hosts the address of rank 0: $(LWS_LEADER_ADDRESS), its Service, its host")


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for an address that is each host's own."""
    if not gives_ranks(plan) or hosts(plan) < 2 or _is_one_machine(plan):
        return
    address = plan.given(_NAME)  # SPL831 asks for one
    if _host(str(address)) in _OWN:
        yield Verdict(
            f"{hosts(plan)} hosts meet at {_host(str(address))}, which is each host's own",
            at=(_NAME, "nnodes"),
            why="each host waits at itself for the others, until its timeout",
            fix=_FIX,
        )


def _is_one_machine(plan: Plan) -> bool:
    """Services of Compose on the host's network do meet at its loopback address."""
    return in_compose(plan) and is_on(around(plan).pod.host_network)


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]") or address


RULE = rule("SPL879", "own-rank-address", Severity.ERROR, check)
