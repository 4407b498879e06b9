"""The GPUs: which, how many, who has their memory; and their driver."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.doctor.check_line import CheckLine, CheckState
from speclaunch.doctor.machine_facts import MachineFacts, Process, Target, Tools
from speclaunch.doctor.processes import Custody, engines, may_end
from speclaunch.engine.catalogue import FALSE_TEXTS, TRUE_TEXTS
from speclaunch.facts.facts import UnknownFact
from speclaunch.facts.hardware import Gpu, Hardware, OtherProcess
from speclaunch.facts.packages import Packages
from speclaunch.plan.topics import memory

_MINIMUM = {11: 450, 12: 525, 13: 580}
"""CUDA's major version to the first driver branch that runs all its minor versions ("minor version
compatibility", docs.nvidia.com/deploy/cuda-compatibility). Later majors are not known here."""


def check_driver(found: MachineFacts) -> Iterator[CheckLine]:
    """Nothing where there is no NVIDIA GPU: the family of GPUs says so."""
    hardware, packages = found.nvidia, found.packages
    if hardware is None:
        return
    driver = hardware.driver or "unknown"
    if not isinstance(packages, Packages) or packages.torch is None:
        yield CheckLine("driver", CheckState.OK, f"NVIDIA driver {driver}")
        return
    torch, on_cpu = packages.torch, found.target is not None and found.target.cpu
    if on_cpu:
        yield CheckLine("driver", CheckState.OK, f"NVIDIA driver {driver}")
    elif torch.cuda is None:
        yield CheckLine(
            "driver",
            CheckState.ERROR,
            f"NVIDIA driver {driver}, and torch {torch.version} is a build without CUDA",
            "the engine would not see the GPU",
            "install a CUDA build of torch next to the engine",
        )
    else:
        yield _compared(found, driver, torch.cuda)


def _compared(found: MachineFacts, driver: str, cuda: str) -> CheckLine:
    said = f"NVIDIA driver {driver}, torch built for CUDA {cuda}"
    minimum = _MINIMUM.get(_major(cuda) or 0)
    branch = _major(driver)
    if minimum is None or branch is None:
        why = f"the driver that CUDA {cuda} needs is not known"
        return CheckLine("driver", CheckState.NOTE, said, why)
    if branch >= minimum:
        return CheckLine("driver", CheckState.OK, said)
    compat = isinstance(found.tools, Tools) and found.tools.compat
    if compat:
        why = (
            f"CUDA {cuda} needs driver {minimum} or newer; CUDA's forward-compatibility package "
            "is installed, which lets data-centre GPUs run with an older one"
        )
        return CheckLine("driver", CheckState.WARNING, said, why)
    return CheckLine(
        "driver",
        CheckState.ERROR,
        said,
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


_GIB = 1 << 30
_OWN_SHARE = 0.03
"""What the driver keeps of a GPU for itself: up to so much is not somebody's."""
_SWITCHES = {
    memory.BALANCE_CHECK: FALSE_TEXTS,
    "SGLANG_DISABLE_TP_MEMORY_INBALANCE_CHECK": TRUE_TEXTS,  # 0.5.3 to 0.5.20
    memory.NO_BALANCE_CHECK: TRUE_TEXTS,
}
"""Variables that make a warning of it; which release reads which is not looked at."""


def check_gpus(found: MachineFacts) -> Iterator[CheckLine]:
    """One line for the kind of GPU, one for each that is not all free."""
    target = found.target
    if target is not None and target.cpu:
        yield CheckLine("gpu", CheckState.OK, "none is needed: this recipe runs on the CPU engine")
        return
    hardware = found.hardware
    if isinstance(hardware, UnknownFact):
        yield _none(found, hardware, target)
        return
    yield _kind(hardware, target)
    if hardware.gpus:
        yield from _occupied(found, hardware.gpus, target)
        yield from _unbalanced(found, hardware.gpus, target)


def _none(found: MachineFacts, why: UnknownFact, target: Target | None) -> CheckLine:
    if target is None or target.device not in (None, "cuda"):
        return CheckLine("gpu", CheckState.NOTE, why.why, "recipes of the CPU engine need none")
    makers = found.tools.devices if isinstance(found.tools, Tools) else ()
    if makers:
        return CheckLine(
            "gpu",
            CheckState.UNKNOWN,
            why.why,
            f"a device of {' and '.join(makers)} is present, which speclaunch cannot inspect",
            why.help,
        )
    fix = "launch it on a machine with GPUs; --hardware h100-80gb:8 checks it for another"
    needed = f"{target.name} needs {_many(target.gpus, 'a GPU')}"
    return CheckLine("gpu", CheckState.ERROR, why.why, needed, fix)


def _kind(hardware: Hardware, target: Target | None) -> CheckLine:
    memory = f", {hardware.memory_mib / 1024:.1f} GiB each" if hardware.memory_mib else ""
    capability = hardware.capability
    said = f", compute capability {capability // 10}.{capability % 10}" if capability else ""
    what = f"{hardware.count} x {hardware.name}{memory}{said}"
    needed = target.gpus if target is not None else None
    if needed is not None and needed > hardware.count and target is not None:
        return CheckLine(
            "gpu",
            CheckState.ERROR,
            what,
            f"{target.name} needs {_many(needed, 'a GPU')} on one machine (tp_size, pp_size, "
            "dp_size over nnodes)",
            f"lower args.tp_size, or use a machine with {needed} GPUs (CUDA_VISIBLE_DEVICES "
            "leaves some out, if it is set)",
        )
    if target is not None and target.meant_for is not None:
        why = f"{target.name} names {target.meant_for}; the rules were checked against this machine"
        return CheckLine("gpu", CheckState.WARNING, what, why)
    return CheckLine("gpu", CheckState.OK, what)


def _occupied(
    found: MachineFacts, gpus: tuple[Gpu, ...], target: Target | None
) -> Iterator[CheckLine]:
    """What others hold is missing from what the engine shares out (`mem_fraction_static`)."""
    all_free = True
    for gpu in gpus:
        if gpu.free_bytes is None:
            continue
        used = gpu.memory_bytes - gpu.free_bytes
        holders = [_holder(process, found) for process in gpu.processes]
        if used <= _OWN_SHARE * gpu.memory_bytes and not holders:
            continue
        all_free = False
        said = f"GPU {gpu.index}: {_gib(gpu.free_bytes)} of {_gib(gpu.memory_bytes)} GiB free"
        if holders:
            said += "; " + ", ".join(holders)
        crowded = used > _OWN_SHARE * gpu.memory_bytes
        leftovers = _left_over(gpu, found)
        yield CheckLine(
            "gpu-memory",
            CheckState.WARNING
            if crowded and (target is not None or leftovers)
            else CheckState.NOTE,
            said,
            _share(gpu, target) if crowded else "",
            f"kill {' '.join(str(pid) for pid in leftovers)}" if leftovers else None,
            command=bool(leftovers),
        )
    if all_free and any(gpu.free_bytes is not None for gpu in gpus):
        yield CheckLine("gpu-memory", CheckState.OK, "all free")


def _share(gpu: Gpu, target: Target | None) -> str:
    if target is None or target.mem_fraction is None or gpu.free_bytes is None:
        return "an engine divides the memory that is free when it starts, not the GPU's total"
    fraction = target.mem_fraction
    return (
        f"mem_fraction_static {fraction:g} applies to what is free at the start: "
        f"{_gib(fraction * gpu.free_bytes)} GiB for weights and KV cache instead of "
        f"{_gib(fraction * gpu.memory_bytes)}"
    )


def _unbalanced(
    found: MachineFacts, gpus: tuple[Gpu, ...], target: Target | None
) -> Iterator[CheckLine]:
    """Ranks with tp_size > 1 refuse to start when one GPU has over a tenth less free memory."""
    if target is None or target.tensor_parallel in (None, 1) or target.gpus is None:
        return
    free = [(gpu.free_bytes, gpu.index) for gpu in gpus[: target.gpus] if gpu.free_bytes]
    if len(free) < max(2, target.gpus) or min(free)[0] >= memory.BALANCED * max(free)[0]:
        return
    (least, where), (most, _) = min(free), max(free)
    switched_off = any(
        found.env.get(name, "").strip().lower() in values for name, values in _SWITCHES.items()
    )
    yield CheckLine(
        "gpu-memory",
        CheckState.WARNING if switched_off else CheckState.ERROR,
        f"GPU {where} has {_gib(least)} GiB free, another {_gib(most)}",
        'the engine refuses to start: "The memory capacity is unbalanced"',
        f"free GPU {where}, or leave it out with CUDA_VISIBLE_DEVICES",
    )


def _holder(process: OtherProcess, found: MachineFacts) -> str:
    """A process on a GPU: what it is, and whose."""
    known = _process(process.pid, found)
    memory = f" holds {_gib(process.memory_bytes)} GiB" if process.memory_bytes else ""
    name = known.name if known is not None else process.name
    owner = f" of {known.user}" if known is not None and known.user not in ("", found.user) else ""
    return f"{name} (process {process.pid}{owner}){memory}"


def _left_over(gpu: Gpu, found: MachineFacts) -> list[int]:
    """The processes on a GPU that belong to an engine which nobody looks after."""
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


def _process(pid: int, found: MachineFacts) -> Process | None:
    if isinstance(found.processes, UnknownFact):
        return None
    return next((process for process in found.processes if process.pid == pid), None)


def _gib(amount: float) -> str:
    return f"{amount / _GIB:.1f}"


def _many(count: int | None, one: str) -> str:
    return one if count in (None, 1) else f"{count} GPUs"
