"""Ranks that share a host have too little shared memory."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.errors import Place
from speclaunch.plan.plan import Plan
from speclaunch.rules.deployments.common import (
    around,
    in_kubernetes,
    is_in_container,
    is_on,
    number,
    text,
    written,
)
from speclaunch.rules.deployments.gpus import ranks_on_host
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.surroundings import Volume

SHARED = "/dev/shm"  # noqa: S108
_MIB = 1 << 20
ENOUGH = 1 << 30
"""NCCL's guide to troubleshooting asks for `--shm-size=1g`."""
_WHY = (
    "NCCL's ranks on one host talk through /dev/shm, some 10 MiB a channel and pair, and stop "
    "with `Error while creating shared memory segment`; a container has 64 MiB by default"
)


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for a container of several ranks."""
    if not is_in_container(plan):
        return
    pod = around(plan).pod
    if is_on(pod.ipc_host) or (pod.ipc_host is not None and not pod.ipc_host.known):
        return
    ranks = ranks_on_host(plan)
    if ranks < 2:
        return
    volume = next((one for one in pod.volumes if text(one.mount) == SHARED), None)
    if volume is not None:
        yield from _of_volume(volume, ranks)
    elif pod.shm_size is not None:
        size = number(pod.shm_size)
        if size is not None and size < ENOUGH:
            yield _too_small(size, ranks, pod.shm_size.place)
    else:
        wanted = (
            f"mount an emptyDir with medium: Memory at {SHARED}"
            if in_kubernetes(plan)
            else "set shm_size to 32g, or ipc to host"
        )
        yield Verdict(
            f"{ranks} ranks share a container that has the default {SHARED} of 64 MiB",
            why=_WHY,
            fix=Fix(wanted),
            place=around(plan).place,
            others=written(plan, "tp_size"),
        )


def _of_volume(volume: Volume, ranks: int) -> Iterator[Verdict]:
    size = number(volume.size)
    if volume.kind == "emptyDir" and volume.medium != "Memory":
        yield Verdict(
            f"the volume at {SHARED} lies on the disk of the node",
            why="an emptyDir without medium: Memory is a directory of the node: what ranks "
            "share goes through its disk",
            fix=Fix("set its medium to Memory"),
            place=volume.place,
            others=(volume.mount.place,),
        )
    elif size is not None and size < ENOUGH:
        place = volume.place if volume.size is None else volume.size.place
        yield _too_small(size, ranks, place)


def _too_small(size: float, ranks: int, place: Place) -> Verdict:
    return Verdict(
        f"{ranks} ranks share {size / _MIB:,.0f} MiB of {SHARED}",
        why=_WHY,
        fix=Fix("give it 1 GiB or more"),
        place=place,
    )


RULE = rule("SPL863", "shared-memory", Severity.WARNING, check)
