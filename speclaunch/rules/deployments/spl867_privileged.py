"""A container that may do anything on its node."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.deployments.common import around, is_on
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for a privileged container."""
    written = around(plan).pod.privileged
    if written is None or not is_on(written):
        return
    yield Verdict(
        "the container is privileged",
        why="it sees all devices of the node, GPUs of other pods too, and can leave its "
        "container; the engine needs none of it",
        fix=Fix("drop it; for RDMA ask for the device and add the capability IPC_LOCK"),
        place=written.place,
    )


RULE = rule("SPL867", "privileged", Severity.WARNING, check)
