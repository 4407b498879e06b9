"""A container's memory limit is below what the engine takes of the host."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.importer.around.values import byte_count
from speclaunch.plan.plan import Plan
from speclaunch.rules.deployments.common import around, in_compose, is_in_container, text
from speclaunch.rules.deployments.gpus import ranks_on_host
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_GIB = 1 << 30
_GB = 10**9
PROCESS = 1.5
"""GiB that a scheduler process holds at least: the CPU engine with a model of 1 MB has 1.5 GB
resident; CUDA and NCCL come on top."""
_POOLS = (("hicache_size", True), ("cpu_offload_gb", False))
"""Arguments that take GB of the host for each rank, and whether the enable_hierarchical_cache
switch has to be on."""


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for a limit that is too small."""
    written = around(plan).pod.limits.get("memory")
    amount = text(written)
    if written is None or amount is None or not is_in_container(plan):
        return
    limit = byte_count(amount, compose=in_compose(plan))
    if limit is None:
        return
    ranks = ranks_on_host(plan)
    pools = sum(_gigabytes(plan, name, hierarchical) for name, hierarchical in _POOLS)
    taken = ranks * pools * _GB
    if taken > limit:
        yield Verdict(
            f"{ranks} ranks take {pools:g} GB of host memory each and the container's limit is "
            f"{limit / _GIB:,.0f} GiB",
            at=tuple(name for name, _ in _POOLS),
            why="the memory is pinned when the server starts: the kernel kills it (OOMKilled, "
            "137), or the engine refuses",
            fix=Fix(f"raise the limit beyond {taken / _GIB + ranks * PROCESS:,.0f} GiB"),
            place=written.place,
        )
    elif limit < ranks * PROCESS * _GIB:
        yield Verdict(
            f"{ranks} ranks share a memory limit of {limit / _GIB:,.1f} GiB",
            at=("tp_size",),
            why=f"each scheduler process holds {PROCESS} GiB and more before it has loaded "
            "anything: OOMKilled, 137",
            fix=Fix("raise it to some GiB a rank, and the size of /dev/shm"),
            place=written.place,
            severity=Severity.WARNING,
        )


def _gigabytes(plan: Plan, name: str, hierarchical: bool) -> float:
    if hierarchical and not plan.value("enable_hierarchical_cache"):
        return 0
    return float(plan.value(name))


RULE = rule(
    "SPL865",
    "host-memory",
    Severity.ERROR,
    check,
    also={Severity.WARNING: "for processes alone"},
)
