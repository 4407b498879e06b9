"""Checks of main memory, limits, disks, driver and GPUs, and of the recipe's memory fit."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.engine import (
    FALSE_TEXTS,
    TRUE_TEXTS,
    Fit,
    Gpu,
    Hardware,
    OtherProcess,
    Packages,
    UnknownFact,
)
from speclaunch.engine import (
    gpu as gpu_topic,
)
from speclaunch.serving.doctor.facts import (
    CheckLine,
    CheckState,
    DiskVolume,
    MachineFacts,
    MachineMemory,
    RecipeNeeds,
    Tools,
    VolumeUse,
)
from speclaunch.serving.doctor.machine import Custody, engines, may_end

_GIB = 1 << 30
_CPU_ENGINE = 2 * _GIB
"""Bytes that the CPU engine needs with a tiny model: 1.5 GiB measured on 0.5.23, rounded up."""
_GPU_ENGINE = 8 * _GIB
"""Minimum bytes of main memory for the processes of a GPU engine."""
_SHARED = 1 * _GIB
"""Minimum bytes of shared memory for NCCL and the engine's ranks; docker's default is 64 MB."""


def check_memory(found: MachineFacts) -> Iterator[CheckLine]:
    """Yield lines about memory, processors and /dev/shm, as limited by a container."""
    memory, target = found.memory, found.target
    if isinstance(memory, UnknownFact):
        yield CheckLine("memory", CheckState.UNKNOWN, f"unknown: {memory.why}")
    else:
        yield _memory(memory, found, target)
        yield _processors(memory, target)
    yield _shared(found, target)


def _memory(memory: MachineMemory, found: MachineFacts, target: RecipeNeeds | None) -> CheckLine:
    usable, total = memory.available, memory.total
    text = f"{usable / _GIB:.1f} of {total / _GIB:.1f} GiB available"
    if memory.limit is not None:
        left = memory.limit - (memory.used_of_limit or 0)
        usable, total = min(usable, max(left, 0)), memory.limit
        text = (
            f"{usable / _GIB:.1f} GiB available: a control group limits it to"
            f" {memory.limit / _GIB:.1f} of {memory.total / _GIB:.1f} GiB"
        )
    if target is None:
        return CheckLine("memory", CheckState.OK, text)
    needed = _CPU_ENGINE if target.device == "cpu" else _GPU_ENGINE
    if usable < needed:
        why = f"an engine needs at least {needed / _GIB:.0f} GiB of main memory"
        fix = "stop other processes, or raise the limit"
        return CheckLine("memory", CheckState.WARNING, text, why, fix)
    checkpoints = (model.checkpoint for model in found.models if model.checkpoint is not None)
    weights = sum(checkpoint.weight_bytes or 0 for checkpoint in checkpoints)
    if target.device == "cpu" and weights > usable:
        why = f"the weights alone need {weights / _GIB:.1f} GiB of main memory"
        fix = "use a smaller model, or a machine with more memory"
        return CheckLine("memory", CheckState.WARNING, text, why, fix)
    if weights > total:
        why = f"{weights / _GIB:.0f} GiB of weights do not fit in memory at once: loading is slower"
        return CheckLine("memory", CheckState.NOTE, text, why)
    return CheckLine("memory", CheckState.OK, text)


def _processors(memory: MachineMemory, target: RecipeNeeds | None) -> CheckLine:
    text = f"{memory.cpus:g} of {memory.machine_cpus} available"
    if memory.cpus >= memory.machine_cpus:
        text = f"{memory.machine_cpus}"
    ranks = target.gpus if target is not None and target.gpus is not None else 1
    # each rank's scheduler keeps a processor busy; tokenizer and detokenizer need more
    if target is not None and target.device != "cpu" and memory.cpus < ranks + 2:
        few = memory.cpus < ranks + 1
        several = f"{ranks} schedulers" if ranks > 1 else "a scheduler"
        why = f"{several}, a tokenizer and a detokenizer share these processors, so the GPU waits"
        return CheckLine("processors", CheckState.WARNING if few else CheckState.NOTE, text, why)
    return CheckLine("processors", CheckState.OK, text)


def _shared(found: MachineFacts, target: RecipeNeeds | None) -> CheckLine:
    volume = found.shared_memory
    if isinstance(volume, UnknownFact):
        return CheckLine("shared-memory", CheckState.UNKNOWN, f"unknown: {volume.why}")
    text = f"{volume.free / _GIB:.1f} of {volume.total / _GIB:.1f} GiB of {volume.path} free"
    several = target is not None and target.gpus is not None and target.gpus > 1
    if several and volume.free < _SHARED:
        return CheckLine(
            "shared-memory",
            CheckState.WARNING,
            text,
            "the ranks communicate through it: NCCL fails with a system error or a bus error",
            "use docker run --shm-size 32g (or --ipc host); in Kubernetes, mount an emptyDir of"
            f" medium Memory at {volume.path}",
        )
    return CheckLine("shared-memory", CheckState.OK, text)


_STATES = {
    Fit.FITS: CheckState.OK,
    Fit.TIGHT: CheckState.WARNING,
    Fit.FAILS: CheckState.WARNING,
    Fit.UNKNOWN: CheckState.UNKNOWN,
}


def check_budget(found: MachineFacts) -> Iterator[CheckLine]:
    """Yield a line with the memory prediction; SPL711 and SPL712 explain a poor fit."""
    if found.target is None or found.target.budget is None:
        return
    budget = found.target.budget
    if budget.fit is Fit.UNKNOWN:
        what, why = "the memory use of the recipe is unknown", "; ".join(budget.unknown)
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
"""Soft limit that the engine sets if the hard limit allows it (`set_ulimit`)."""
_FEW_FILES = 4096
_FEW_PROCESSES = 4096


def check_limits(found: MachineFacts) -> Iterator[CheckLine]:
    """Yield one line if all limits are fine, else one line per problem."""
    limits = found.limits
    if isinstance(limits, UnknownFact):
        yield CheckLine("limits", CheckState.UNKNOWN, f"unknown: {limits.why}")
        return
    lines = list(_low(limits.files_soft, limits.files_hard, limits.processes))
    yield from lines
    if not lines:
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
            f"the engine needs {_FILES}; without a free file it refuses connections",
            "use docker run --ulimit nofile=65535, or set nofile in /etc/security/limits.conf",
        )
    if processes is not None and processes < _FEW_PROCESSES:
        why = "threads count as processes: an engine and its compilers start thousands"
        fix = "run ulimit -u 65535, or set nproc in /etc/security/limits.conf"
        yield CheckLine("limits", CheckState.WARNING, f"processes {processes}", why, fix)


def _amount(value: int | None, unit: int = 1, name: str = "") -> str:
    return "unlimited" if value is None else f"{value / unit:.0f}{name}"


_GB = 10**9
_LOW = 5 * _GB
"""Free bytes below which a log, a compile cache or a small model may fill the disk."""
_FULL = 200 * 10**6


def check_disk(found: MachineFacts) -> Iterator[CheckLine]:
    """Yield one line per disk, and one per unwritable directory."""
    disks: dict[int, list[DiskVolume]] = {}
    for volume in found.volumes:
        if isinstance(volume, UnknownFact):
            yield CheckLine("disk", CheckState.UNKNOWN, f"{volume.what}: {volume.why}")
        else:
            disks.setdefault(volume.device, []).append(volume)
    for volumes in disks.values():
        yield _space(volumes)
        for volume in volumes:
            if not volume.writable:
                text, why = f"{volume.path} cannot be written", f"it is used for {volume.use}"
                yield CheckLine("disk", CheckState.WARNING, text, why, _elsewhere(volume))


def _space(volumes: list[DiskVolume]) -> CheckLine:
    first = volumes[0]
    names = ", ".join(f"{volume.use} {volume.path}" for volume in volumes)
    text = f"{first.free / _GB:.1f} of {first.total / _GB:.0f} GB free: {names}"
    if first.free < _FULL:
        why = "nothing can be downloaded, compiled or logged there"
        return CheckLine("disk", CheckState.WARNING, text, why, _make_room(volumes))
    if first.free < _LOW:
        why = "a model does not fit"
        return CheckLine("disk", CheckState.WARNING, text, why, _make_room(volumes))
    return CheckLine("disk", CheckState.OK, text)


def _make_room(volumes: list[DiskVolume]) -> str:
    return f"free some space, or {_elsewhere(volumes[0])}"


_VARIABLES = {
    VolumeUse.MODELS: "HF_HOME",
    VolumeUse.SPECLAUNCH: "SPECLAUNCH_HOME",
    VolumeUse.TEMPORARY: "TMPDIR",
}


def _elsewhere(volume: DiskVolume) -> str:
    variable = _VARIABLES.get(volume.use)
    return f"set {variable} to another directory" if variable else "choose another directory"


_MINIMUM = {11: 450, 12: 525, 13: 580}
"""First driver branch that runs all minor versions of a CUDA major version ("minor version
compatibility", docs.nvidia.com/deploy/cuda-compatibility). The requirements of later major versions
are unknown."""


def check_driver(found: MachineFacts) -> Iterator[CheckLine]:
    """Yield a line about the NVIDIA driver; nothing without an NVIDIA GPU."""
    hardware, packages = found.nvidia, found.packages
    if hardware is None:
        return
    driver = hardware.driver or "unknown"
    torch = packages.torch if isinstance(packages, Packages) else None
    if torch is None or (found.target is not None and found.target.cpu):
        yield CheckLine("driver", CheckState.OK, f"NVIDIA driver {driver}")
    elif torch.cuda is None:
        yield CheckLine(
            "driver",
            CheckState.ERROR,
            f"NVIDIA driver {driver}, but torch {torch.version} is a build without CUDA",
            "the engine would not see the GPU",
            "install a CUDA build of torch in the engine's environment",
        )
    else:
        yield _compared(found, driver, torch.cuda)


def _compared(found: MachineFacts, driver: str, cuda: str) -> CheckLine:
    text = f"NVIDIA driver {driver}, torch built for CUDA {cuda}"
    minimum = _MINIMUM.get(_major(cuda) or 0)
    branch = _major(driver)
    if minimum is None or branch is None:
        why = f"the driver version that CUDA {cuda} needs is unknown"
        return CheckLine("driver", CheckState.NOTE, text, why)
    if branch >= minimum:
        return CheckLine("driver", CheckState.OK, text)
    if isinstance(found.tools, Tools) and found.tools.compat:
        why = (
            f"CUDA {cuda} needs driver {minimum} or newer; CUDA's forward-compatibility package "
            "is installed, which lets data-center GPUs run with an older driver"
        )
        return CheckLine("driver", CheckState.WARNING, text, why)
    return CheckLine(
        "driver",
        CheckState.ERROR,
        text,
        f"CUDA {cuda} needs driver {minimum} or newer",
        f"update the driver to {minimum} or newer, or install an SGLang whose torch is built for"
        f" {_newest_for(branch)}",
    )


def _newest_for(branch: int) -> str:
    fitting = [cuda for cuda, minimum in _MINIMUM.items() if minimum <= branch]
    return f"CUDA {max(fitting)}.x" if fitting else "an older CUDA"


def _major(version: str) -> int | None:
    head = version.partition(".")[0]
    return int(head) if head.isdigit() else None


_OWN_SHARE = 0.03
"""Maximum share of memory in use on an unused GPU; the driver reserves some."""
_SWITCHES = {
    gpu_topic.BALANCE_CHECK: FALSE_TEXTS,
    "SGLANG_DISABLE_TP_MEMORY_INBALANCE_CHECK": TRUE_TEXTS,  # 0.5.3 to 0.5.20
    gpu_topic.NO_BALANCE_CHECK: TRUE_TEXTS,
}
"""Variables and values that turn the engine's error about unbalanced memory into a warning."""


def check_gpus(found: MachineFacts) -> Iterator[CheckLine]:
    """Yield lines about the kind of GPU, occupied GPUs, and unbalanced free memory."""
    target = found.target
    if target is not None and target.cpu:
        yield CheckLine("gpu", CheckState.OK, "not needed: this recipe runs on the CPU engine")
        return
    hardware = found.hardware
    if isinstance(hardware, UnknownFact):
        yield _none(found, hardware, target)
        return
    yield _kind(hardware, target)
    if hardware.gpus:
        yield from _occupied(found, hardware.gpus, target)
        yield from _unbalanced(found, hardware.gpus, target)


def _none(found: MachineFacts, why: UnknownFact, target: RecipeNeeds | None) -> CheckLine:
    if target is None or target.device not in (None, "cuda"):
        return CheckLine("gpu", CheckState.NOTE, why.why, "CPU engine recipes need no GPU")
    makers = found.tools.devices if isinstance(found.tools, Tools) else ()
    if makers:
        seen = f"found an accelerator from {' and '.join(makers)} that speclaunch cannot inspect"
        return CheckLine("gpu", CheckState.UNKNOWN, why.why, seen, why.help)
    fix = (
        "launch it on a machine with GPUs; to check for such a machine, use --hardware h100-80gb:8"
    )
    needed = f"{target.name} needs {_many(target.gpus, 'a GPU')}"
    return CheckLine("gpu", CheckState.ERROR, why.why, needed, fix)


def _kind(hardware: Hardware, target: RecipeNeeds | None) -> CheckLine:
    memory = f", {hardware.memory_mib / 1024:.1f} GiB each" if hardware.memory_mib else ""
    capability = hardware.capability
    detail = f", compute capability {capability // 10}.{capability % 10}" if capability else ""
    what = f"{hardware.count} x {hardware.name}{memory}{detail}"
    needed = target.gpus if target is not None else None
    if needed is not None and needed > hardware.count and target is not None:
        return CheckLine(
            "gpu",
            CheckState.ERROR,
            what,
            f"{target.name} needs {_many(needed, 'a GPU')} on one machine (tp_size, pp_size, "
            "dp_size over nnodes)",
            f"lower args.tp_size, or use a machine with {needed} GPUs (CUDA_VISIBLE_DEVICES "
            "may hide some)",
        )
    if target is not None and target.meant_for is not None:
        why = f"{target.name} is for {target.meant_for}; the rules used this machine instead"
        return CheckLine("gpu", CheckState.WARNING, what, why)
    return CheckLine("gpu", CheckState.OK, what)


def _occupied(
    found: MachineFacts, gpus: tuple[Gpu, ...], target: RecipeNeeds | None
) -> Iterator[CheckLine]:
    """Yield a line per GPU whose memory other processes use, which reduces the engine's share
    (`mem_fraction_static`)."""
    all_free = True
    for gpu in gpus:
        if gpu.free_bytes is None:
            continue
        used = gpu.memory_bytes - gpu.free_bytes
        holders = [_holder(process, found) for process in gpu.processes]
        if used <= _OWN_SHARE * gpu.memory_bytes and not holders:
            continue
        all_free = False
        text = f"GPU {gpu.index}: {_gib(gpu.free_bytes)} of {_gib(gpu.memory_bytes)} GiB free"
        if holders:
            text += "; " + ", ".join(holders)
        crowded = used > _OWN_SHARE * gpu.memory_bytes
        leftovers = _left_over(gpu, found)
        yield CheckLine(
            "gpu-memory",
            CheckState.WARNING
            if crowded and (target is not None or leftovers)
            else CheckState.NOTE,
            text,
            _share(gpu, target) if crowded else "",
            f"kill {' '.join(str(pid) for pid in leftovers)}" if leftovers else None,
            command=bool(leftovers),
        )
    if all_free and any(gpu.free_bytes is not None for gpu in gpus):
        yield CheckLine("gpu-memory", CheckState.OK, "all free")


def _share(gpu: Gpu, target: RecipeNeeds | None) -> str:
    if target is None or target.mem_fraction is None or gpu.free_bytes is None:
        return "an engine divides the memory that is free at its start, not the GPU's total"
    fraction = target.mem_fraction
    return (
        f"mem_fraction_static {fraction:g} applies to the memory free at the start: "
        f"{_gib(fraction * gpu.free_bytes)} GiB for weights and KV cache instead of "
        f"{_gib(fraction * gpu.memory_bytes)}"
    )


def _unbalanced(
    found: MachineFacts, gpus: tuple[Gpu, ...], target: RecipeNeeds | None
) -> Iterator[CheckLine]:
    """Yield a line if free GPU memory is unbalanced. With tp_size > 1, ranks refuse to start if one
    GPU has over 10% less free memory than another."""
    if target is None or target.tensor_parallel in (None, 1) or target.gpus is None:
        return
    free = [(gpu.free_bytes, gpu.index) for gpu in gpus[: target.gpus] if gpu.free_bytes]
    if len(free) < max(2, target.gpus) or min(free)[0] >= gpu_topic.BALANCED * max(free)[0]:
        return
    (least, where), (most, _) = min(free), max(free)
    switched_off = any(
        found.env.get(name, "").strip().lower() in values for name, values in _SWITCHES.items()
    )
    yield CheckLine(
        "gpu-memory",
        CheckState.WARNING if switched_off else CheckState.ERROR,
        f"GPU {where} has {_gib(least)} GiB free, another GPU has {_gib(most)}",
        'the engine refuses to start: "The memory capacity is unbalanced"',
        f"free GPU {where}, or exclude it with CUDA_VISIBLE_DEVICES",
    )


def _holder(process: OtherProcess, found: MachineFacts) -> str:
    processes = () if isinstance(found.processes, UnknownFact) else found.processes
    known = next((listed for listed in processes if listed.pid == process.pid), None)
    memory = f" holds {_gib(process.memory_bytes)} GiB" if process.memory_bytes else ""
    name = known.name if known is not None else process.name
    owner = f" of {known.user}" if known is not None and known.user not in ("", found.user) else ""
    return f"{name} (process {process.pid}{owner}){memory}"


def _left_over(gpu: Gpu, found: MachineFacts) -> list[int]:
    if isinstance(found.processes, UnknownFact):
        return []
    on_gpu = {process.pid for process in gpu.processes}
    return [
        member.pid
        for tree in engines(found.processes)
        if tree.custody is Custody.LEFT_OVER
        for member in tree.members
        if member.pid in on_gpu and may_end(member, found.user)
    ]


def _gib(amount: float) -> str:
    return f"{amount / _GIB:.1f}"


def _many(count: int | None, singular: str) -> str:
    return singular if count in (None, 1) else f"{count} GPUs"
