"""A host of a server that cannot find the others."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.errors import COMMAND_LINE
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.plan.request import Origin
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.roles import ADDRESS, NODES, RANK
from speclaunch.rules.values import number


def check(plan: Plan) -> Iterator[Verdict]:
    """Verdicts on the rank and the address of a server of several hosts."""
    nodes = number(plan, NODES) or 0  # same either way: every release has it
    if nodes < 2 or plan.value("use_ray"):
        return
    rank = _rank(plan)
    if rank is not None and rank >= nodes:
        yield Verdict(
            f"node_rank {rank} is not below nnodes {nodes}",
            at=(RANK, NODES),
            why="the ranks of this host are beyond the last one: the others never wait for it",
            fix=Fix(f"number the hosts from 0 to {nodes - 1}"),
        )
    if plan.request.origin is Origin.RECIPE:
        yield from _fixed(plan)
    elif not plan.is_given(ADDRESS):
        yield Verdict(
            f"{nodes} hosts, and no dist_init_addr",
            at=(NODES,),
            why="each host looks for the others on its own 127.0.0.1, and waits until the start "
            "times out",
            fix=Fix("give all hosts the address of the first: --dist-init-addr HOST:PORT"),
        )


def _rank(plan: Plan) -> int | None:
    """None where the platform says it: the address is asked for all the same."""
    try:
        return number(plan, RANK)
    except UnknownValueError:
        return None


def _fixed(plan: Plan) -> Iterator[Verdict]:
    """What a recipe cannot say for all hosts at once."""
    name = RANK
    if plan.is_given(name) and plan.place(name).path != COMMAND_LINE:
        yield Verdict(
            f"the recipe is for {number(plan, NODES)} hosts, and fixes {name}",
            at=(name,),
            why="each host starts the same recipe: the platform that starts it says which one it "
            "is",
            fix=Fix(f"remove {name}; give it at the start: args.{name}=…"),
            severity=Severity.WARNING,
        )


RULE = rule(
    "SPL831",
    "node-address",
    Severity.ERROR,
    check,
    also={Severity.WARNING: "for a recipe that is for one of its hosts alone"},
)
