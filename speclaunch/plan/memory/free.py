"""The memory of each rank's device when the engine begins to load weights.

The engine measures it itself ("Load weight begin. avail mem=…", sglang 0.5.23
distributed/bootstrap.py:207, 0.4.6 model_runner.py:474) after CUDA and NCCL are set up.
"""

from __future__ import annotations

import math

from speclaunch.facts.hardware import Gpu, Hardware, Vendor
from speclaunch.facts.unknown import UNKNOWN_HARDWARE
from speclaunch.plan.budget import Size
from speclaunch.plan.memory.estimate import MIB, Estimate, in_gib
from speclaunch.plan.placement import local_gpus
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.plan.topics import parallel
from speclaunch.record import record

_CONTEXT = 1126 * MIB
"""What the driver, a CUDA context and the libraries' handles take. Public logs of 0.5.3 to 0.5.12:
1.07 GiB on a 3090, 1.18 on a 48 GB card, 1.10 on an H200."""
_LARGE = 60 * 1024
"""MiB. GPUs from here on are linked, and NCCL takes buffers for the links."""
_LINKED_PAIR = 1464 * MIB
_LINKED_DOUBLING = 290 * MIB
"""NCCL and custom all-reduce: 1.43 GiB of an H200 with two ranks, 2.0 with eight ("Init torch
distributed ends. mem usage=…" of public logs)."""
_UNLINKED = 150 * MIB
_PROCESSES = 1150 * MIB
"""What the three processes of a CPU engine take before weights are loaded (0.5.23, measured)."""


@record
class Device:
    """The device of some ranks: its memory, and what is taken of it before weights are loaded."""

    ranks: tuple[int, ...]
    memory_bytes: int
    others: Size
    runtime: Estimate

    @property
    def free(self) -> int:
        """Bytes, by the best estimate."""
        return self.memory_bytes - self.others.bytes - self.runtime.size.bytes

    @property
    def most_free(self) -> int:
        """Bytes, with what is estimated at its least."""
        return self.memory_bytes - self.others.bytes - self.runtime.least


def number(plan: Plan, name: str, default: int = 1) -> int:
    """A value that counts something. Raises UnknownValueError."""
    value = plan.value(name)
    return default if value is None else int(value)


def devices(plan: Plan) -> tuple[Device, ...]:
    """The devices of the ranks on this machine, those alike together. Raises UnknownValueError."""
    hardware = plan.facts.hardware
    if hardware is None:
        raise UnknownValueError(UNKNOWN_HARDWARE)
    if plan.device.startswith("cpu"):
        return (_host(plan, hardware),)
    if hardware.vendor is Vendor.CPU:
        raise UnknownValueError("no GPU found, its memory is not known")
    shard = number(plan, "tp_size") * number(plan, "pp_size")
    runtime = _runtime(hardware, shard)
    if not hardware.gpus:
        if hardware.memory_mib is None:
            raise UnknownValueError("the memory of the GPU is not known")
        others = Size(0, "none are assumed: the hardware is declared, not probed")
        replicas = parallel.replicas(plan)
        ranks = range(max(1, shard * replicas // max(1, number(plan, "nnodes"))))
        return (Device(tuple(ranks), hardware.memory_mib * MIB, others, runtime),)
    alike: dict[tuple[int, int, str], list[int]] = {}
    for rank, index in enumerate(local_gpus(plan)):
        gpu = hardware.gpus[index % len(hardware.gpus)]
        others = _others(gpu)
        alike.setdefault((gpu.memory_bytes, others.bytes, others.why), []).append(rank)
    return tuple(
        Device(tuple(found), memory, Size(taken, why), runtime)
        for (memory, taken, why), found in alike.items()
    )


def _others(gpu: Gpu) -> Size:
    """What other processes hold. The driver counts a part of its own as used on an idle GPU: that
    is in the estimate of the runtime already."""
    named = [one for one in gpu.processes if one.memory_bytes]
    if named:
        text = ", ".join(f"{one.name} ({one.pid}) {in_gib(one.memory_bytes or 0)}" for one in named)
        return Size(sum(one.memory_bytes or 0 for one in named), text)
    used = gpu.memory_bytes - (gpu.free_bytes if gpu.free_bytes is not None else gpu.memory_bytes)
    if used < 1024 * MIB:
        return Size(0, "none")
    return Size(used, f"{in_gib(used)} of GPU {gpu.index} are in use")


def _runtime(hardware: Hardware, shard: int) -> Estimate:
    taken, why = _CONTEXT, f"about {in_gib(_CONTEXT)} for the CUDA context and libraries"
    if shard > 1:
        linked = (hardware.memory_mib or 0) >= _LARGE
        between = _UNLINKED
        if linked:
            between = _LINKED_PAIR + int(_LINKED_DOUBLING * (math.log2(shard) - 1))
        taken += between
        why += f", {in_gib(between)} for NCCL between {shard} ranks"
    return Estimate(Size(taken, why, exact=False), taken * 3 // 4)


def _host(plan: Plan, hardware: Hardware) -> Device:
    """A CPU: what the host has available, divided among its NUMA nodes, each of which serves a
    rank (`get_available_gpu_memory`, sglang 0.5.23 utils/common.py:490)."""
    if not hardware.gpus:
        raise UnknownValueError("the memory of the host is not known")
    node = min(hardware.gpus, key=lambda one: one.free_bytes or one.memory_bytes)
    free = node.memory_bytes if node.free_bytes is None else node.free_bytes
    ranks = tuple(range(number(plan, "tp_size")))
    taken = node.memory_bytes - free
    why = f"about {in_gib(_PROCESSES)} for the engine's processes"
    runtime = Estimate(Size(_PROCESSES, why, exact=False), _PROCESSES // 2)
    return Device(ranks, node.memory_bytes, Size(taken, f"{in_gib(taken)} are in use"), runtime)
