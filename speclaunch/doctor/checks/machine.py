"""Main memory, limits and disks, and whether the recipe fits into them."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.doctor.check_line import CheckLine, CheckState
from speclaunch.doctor.machine_facts import MachineFacts, MachineMemory, Target, Volume, VolumeUse
from speclaunch.facts.facts import UnknownFact
from speclaunch.plan.budget import Fit

_GIB = 1 << 30
_CPU_ENGINE = 2 * _GIB
"""The CPU engine with a tiny model takes about 1.5 GiB (measured on 0.5.23)."""
_GPU_ENGINE = 8 * _GIB
"""Below this a GPU engine's processes alone are tight."""
_SHARED = 1 * _GIB
"""NCCL and the engine's ranks talk through shared memory; docker gives 64 MB unless told."""


def check_memory(found: MachineFacts) -> Iterator[CheckLine]:
    """Memory with what a container allows of it, processors, /dev/shm."""
    memory, target = found.memory, found.target
    if isinstance(memory, UnknownFact):
        yield CheckLine("memory", CheckState.UNKNOWN, f"unknown: {memory.why}")
    else:
        yield _memory(memory, found, target)
        yield _processors(memory, target)
    yield _shared(found, target)


def _memory(memory: MachineMemory, found: MachineFacts, target: Target | None) -> CheckLine:
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
        return CheckLine("memory", CheckState.OK, said)
    needed = _CPU_ENGINE if target.device == "cpu" else _GPU_ENGINE
    if usable < needed:
        why = f"an engine takes {needed / _GIB:.0f} GiB of main memory or more"
        return CheckLine(
            "memory", CheckState.WARNING, said, why, "stop other processes, or raise the limit"
        )
    weights = _weights(found)
    if target.device == "cpu" and weights > usable:
        return CheckLine(
            "memory",
            CheckState.WARNING,
            said,
            f"the weights alone are {weights / _GIB:.1f} GiB, and are held in main memory",
            "use use a smaller model, or a machine with more memory",
        )
    if weights > total:
        why = f"{weights / _GIB:.0f} GiB of weights are read through it: loading is slower"
        return CheckLine("memory", CheckState.NOTE, said, why)
    return CheckLine("memory", CheckState.OK, said)


def _processors(memory: MachineMemory, target: Target | None) -> CheckLine:
    said = f"{memory.cpus:g} of {memory.machine_cpus} may be used"
    if memory.cpus >= memory.machine_cpus:
        said = f"{memory.machine_cpus}"
    ranks = target.gpus if target is not None and target.gpus is not None else 1
    # each rank's scheduler keeps one busy; the tokenizer and the detokenizer work beside them
    if target is not None and target.device != "cpu" and memory.cpus < ranks + 2:
        few = memory.cpus < ranks + 1
        several = f"{ranks} schedulers" if ranks > 1 else "a scheduler"
        why = f"{several}, a tokenizer and a detokenizer share them: the GPU waits"
        return CheckLine("processors", CheckState.WARNING if few else CheckState.NOTE, said, why)
    return CheckLine("processors", CheckState.OK, said)


def _shared(found: MachineFacts, target: Target | None) -> CheckLine:
    volume = found.shared_memory
    if isinstance(volume, UnknownFact):
        return CheckLine("shared-memory", CheckState.UNKNOWN, f"unknown: {volume.why}")
    said = f"{volume.free / _GIB:.1f} of {volume.total / _GIB:.1f} GiB of {volume.path} free"
    several = target is not None and target.gpus is not None and target.gpus > 1
    if several and volume.free < _SHARED:
        return CheckLine(
            "shared-memory",
            CheckState.WARNING,
            said,
            "the ranks communicate through it: NCCL fails with a system error or a bus error",
            "docker run --shm-size 32g (or --ipc host); in Kubernetes an emptyDir of medium Memory"
            f" at {volume.path}",
        )
    return CheckLine("shared-memory", CheckState.OK, said)


def _weights(found: MachineFacts) -> int:
    return sum(
        model.checkpoint.weight_bytes or 0 for model in found.models if model.checkpoint is not None
    )


_STATES = {
    Fit.FITS: CheckState.OK,
    Fit.TIGHT: CheckState.WARNING,
    Fit.FAILS: CheckState.WARNING,
    Fit.UNKNOWN: CheckState.UNKNOWN,
}


def check_budget(found: MachineFacts) -> Iterator[CheckLine]:
    """The memory verdict; SPL711 and SPL712 say more of one that fails or is tight."""
    if found.target is None or found.target.budget is None:
        return
    budget = found.target.budget
    if budget.fit is Fit.UNKNOWN:
        what, why = "whether the recipe fits is unknown", "; ".join(budget.unknown)
    else:
        what = f"{found.target.name} {budget.fit.text}: {budget.why}"
        why = "; ".join(budget.notes)
    failing = budget.fit in (Fit.TIGHT, Fit.FAILS)
    command = f"speclaunch plan recipe={found.target.called or found.target.name} --fit"
    yield CheckLine(
        "memory-budget",
        CheckState.ERROR if budget.impossible else _STATES[budget.fit],
        what,
        why,
        command if failing else None,
        command=failing,
    )


_FILES = 65535
"""The engine raises its own soft limit to this where the hard limit lets it (`set_ulimit`)."""
_FEW_FILES = 4096
_FEW_PROCESSES = 4096


def check_limits(found: MachineFacts) -> Iterator[CheckLine]:
    """One line where all is well, one a limit that is not."""
    limits = found.limits
    if isinstance(limits, UnknownFact):
        yield CheckLine("limits", CheckState.UNKNOWN, f"unknown: {limits.why}")
        return
    said = list(_low(limits.files_soft, limits.files_hard, limits.processes))
    yield from said
    if not said:
        locked = _amount(limits.locked_memory, 1 << 20, " MiB")
        yield CheckLine(
            "limits",
            CheckState.OK,
            f"open files {_amount(limits.files_soft)} (at most {_amount(limits.files_hard)}),"
            f" processes {_amount(limits.processes)}, locked memory {locked}",
        )


def _low(soft: int | None, hard: int | None, processes: int | None) -> Iterator[CheckLine]:
    if hard is not None and hard < _FILES:
        few = min(soft if soft is not None else hard, hard) < _FEW_FILES
        yield CheckLine(
            "limits",
            CheckState.WARNING if few else CheckState.NOTE,
            f"open files {_amount(soft)}, at most {hard}",
            f"the engine needs {_FILES}, and refuses connections when it runs out",
            "docker run --ulimit nofile=65535; elsewhere nofile in /etc/security/limits.conf",
        )
    if processes is not None and processes < _FEW_PROCESSES:
        yield CheckLine(
            "limits",
            CheckState.WARNING,
            f"processes {processes}",
            "threads count: an engine and its compilers start thousands",
            "ulimit -u 65535, or nproc in /etc/security/limits.conf",
        )


def _amount(value: int | None, unit: int = 1, name: str = "") -> str:
    return "unlimited" if value is None else f"{value / unit:.0f}{name}"


_GB = 10**9
_LOW = 5 * _GB
"""Less than this runs out on a log, a compile cache or a small model."""
_FULL = 200 * 10**6


def check_disk(found: MachineFacts) -> Iterator[CheckLine]:
    """One line a disk; directories that cannot be written one each."""
    disks: dict[int, list[Volume]] = {}
    for volume in found.volumes:
        if isinstance(volume, UnknownFact):
            yield CheckLine("disk", CheckState.UNKNOWN, f"{volume.what}: {volume.why}")
        else:
            disks.setdefault(volume.device, []).append(volume)
    for volumes in disks.values():
        yield _space(volumes)
        for volume in volumes:
            if not volume.writable:
                yield CheckLine(
                    "disk",
                    CheckState.WARNING,
                    f"{volume.path} cannot be written",
                    f"it is used for {volume.use}",
                    _elsewhere(volume),
                )


def _space(volumes: list[Volume]) -> CheckLine:
    first = volumes[0]
    names = ", ".join(f"{volume.use} {volume.path}" for volume in volumes)
    said = f"{first.free / _GB:.1f} of {first.total / _GB:.0f} GB free: {names}"
    if first.free < _FULL:
        why = "nothing can be downloaded, compiled or logged there"
        return CheckLine("disk", CheckState.WARNING, said, why, _make_room(volumes))
    if first.free < _LOW:
        return CheckLine(
            "disk", CheckState.WARNING, said, "a model does not fit", _make_room(volumes)
        )
    return CheckLine("disk", CheckState.OK, said)


def _make_room(volumes: list[Volume]) -> str:
    return f"free some space, or {_elsewhere(volumes[0])}"


_VARIABLES = {
    VolumeUse.MODELS: "HF_HOME",
    VolumeUse.SPECLAUNCH: "SPECLAUNCH_HOME",
    VolumeUse.TEMPORARY: "TMPDIR",
}


def _elsewhere(volume: Volume) -> str:
    variable = _VARIABLES.get(volume.use)
    return f"set {variable} to another directory" if variable else "name another directory"
