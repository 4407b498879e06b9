"""Two hosts of one server have the same rank."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.rules.deployments.common import (
    around,
    gives_ranks,
    hosts,
    whole,
    written,
)
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_LEADER_AND_ONE = 2
_FIX = Fix("take it from the platform: $(LWS_WORKER_INDEX), the pod's index, SLURM_NODEID")
_WHY = (
    "each rank connects once: the second host with a rank is refused, or both wait for the others "
    "until their timeout"
)


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for a rank that several hosts run with, or that is not theirs."""
    if not gives_ranks(plan):
        return
    number = _rank(plan)
    nodes = whole(around(plan).nodes)
    count = hosts(plan)
    if number is None or count < 2:
        return
    part = around(plan).part
    if part is None and nodes is not None and nodes > 1:
        yield _verdict(plan, f"{nodes} hosts run one command with node_rank {number}")
    elif part == "leader" and number != 0:
        yield _verdict(plan, f"the leader has node_rank {number}, and dist_init_addr is that of 0")
    elif part == "worker" and number == 0:
        yield _verdict(plan, "the workers have node_rank 0, which is the leader's")
    elif part == "worker" and nodes is not None and nodes > _LEADER_AND_ONE:
        yield _verdict(plan, f"{nodes - 1} workers run one command with node_rank {number}")


def _verdict(plan: Plan, message: str) -> Verdict:
    nodes = around(plan).nodes
    return Verdict(
        message,
        at=("node_rank",),
        why=_WHY,
        fix=_FIX,
        others=(*written(plan, "nnodes"), *(() if nodes is None else (nodes.place,))),
    )


def _rank(plan: Plan) -> int | None:
    """The rank that the command has, 0 where it says none; None where the platform says it."""
    try:
        return int(plan.value("node_rank"))
    except UnknownValueError:
        return None


RULE = rule("SPL878", "fixed-rank", Severity.ERROR, check)
