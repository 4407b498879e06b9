"""Main memory, processors, shared memory."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.doctor.line import Line, State
from speclaunch.doctor.surroundings import Memory, Surroundings, Target
from speclaunch.facts.facts import UnknownFact

_GIB = 1 << 30
_CPU_ENGINE = 2 * _GIB
"""The CPU engine with a tiny model takes about 1.5 GiB (measured on 0.5.23)."""
_GPU_ENGINE = 8 * _GIB
"""Below this a GPU engine's processes alone are tight."""
_SHARED = 1 * _GIB
"""NCCL and the engine's ranks talk through shared memory; docker gives 64 MB unless told."""


def check(found: Surroundings) -> Iterator[Line]:
    """Memory with what a container allows of it, processors, /dev/shm."""
    memory, target = found.memory, found.target
    if isinstance(memory, UnknownFact):
        yield Line("memory", State.UNKNOWN, f"it cannot be told: {memory.why}")
    else:
        yield _memory(memory, found, target)
        yield _processors(memory, target)
    yield _shared(found, target)


def _memory(memory: Memory, found: Surroundings, target: Target | None) -> Line:
    usable, total = memory.available, memory.total
    said = f"{usable / _GIB:.1f} of {total / _GIB:.1f} GiB available"
    if memory.limit is not None:
        left = memory.limit - (memory.used_of_limit or 0)
        usable, total = min(usable, max(left, 0)), memory.limit
        said = (
            f"{usable / _GIB:.1f} GiB available: a control group limits it to"
            f" {memory.limit / _GIB:.1f} of {memory.total / _GIB:.1f} GiB"
        )
    if target is None:
        return Line("memory", State.OK, said)
    needed = _CPU_ENGINE if target.device == "cpu" else _GPU_ENGINE
    if usable < needed:
        why = f"an engine takes {needed / _GIB:.0f} GiB and more of main memory"
        return Line("memory", State.WARNING, said, why, "end what needs memory, or raise the limit")
    weights = _weights(found)
    if target.device == "cpu" and weights > usable:
        return Line(
            "memory",
            State.WARNING,
            said,
            f"the weights alone are {weights / _GIB:.1f} GiB, and are held in main memory",
            "a smaller model, or a machine with more memory",
        )
    if weights > total:
        why = f"{weights / _GIB:.0f} GiB of weights are read through it: loading is slower"
        return Line("memory", State.NOTE, said, why)
    return Line("memory", State.OK, said)


def _processors(memory: Memory, target: Target | None) -> Line:
    said = f"{memory.cpus:g} of {memory.machine_cpus} may be used"
    if memory.cpus >= memory.machine_cpus:
        said = f"{memory.machine_cpus}"
    ranks = target.gpus if target is not None and target.gpus is not None else 1
    # each rank's scheduler keeps one busy; the tokenizer and the detokenizer work beside them
    if target is not None and target.device != "cpu" and memory.cpus < ranks + 2:
        few = memory.cpus < ranks + 1
        several = f"{ranks} schedulers" if ranks > 1 else "a scheduler"
        why = f"{several}, a tokenizer and a detokenizer share them: the GPU waits"
        return Line("processors", State.WARNING if few else State.NOTE, said, why)
    return Line("processors", State.OK, said)


def _shared(found: Surroundings, target: Target | None) -> Line:
    volume = found.shared_memory
    if isinstance(volume, UnknownFact):
        return Line("shared-memory", State.UNKNOWN, f"it cannot be told: {volume.why}")
    said = f"{volume.free / _GIB:.1f} of {volume.total / _GIB:.1f} GiB of {volume.path} free"
    several = target is not None and target.gpus is not None and target.gpus > 1
    if several and volume.free < _SHARED:
        return Line(
            "shared-memory",
            State.WARNING,
            said,
            "the ranks talk through it: NCCL fails with a system error or a bus error",
            "docker run --shm-size 32g (or --ipc host); in Kubernetes an emptyDir of medium Memory"
            f" at {volume.path}",
        )
    return Line("shared-memory", State.OK, said)


def _weights(found: Surroundings) -> int:
    return sum(
        model.checkpoint.weight_bytes or 0 for model in found.models if model.checkpoint is not None
    )
