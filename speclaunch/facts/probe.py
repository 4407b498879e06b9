"""The GPUs of this machine, as NVIDIA's management library sees them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from speclaunch.facts.facts import UnknownFact
from speclaunch.facts.hardware import Gpu, Hardware, OtherProcess, Vendor

_WHAT = "the GPUs of this machine"
_MIB = 1 << 20


def probe_hardware(
    library: Any = None, environment: Mapping[str, str] | None = None
) -> Hardware | UnknownFact:
    """The NVIDIA GPUs that CUDA_VISIBLE_DEVICES leaves, or why there are none to see.

    `library` is `pynvml`, or what stands in for it in a test. Of different GPUs the least memory
    and the lowest capability count: every rank gets the same settings.
    """
    if library is None:
        try:
            library = import_module("pynvml")
        except ImportError:
            return UnknownFact(_WHAT, "nvidia-ml-py is not installed", "name them: --hardware")
    try:
        library.nvmlInit()
    except Exception as error:  # NVMLError_LibraryNotFound, _DriverNotLoaded, …
        return UnknownFact(
            _WHAT, f"no NVIDIA driver answers ({type(error).__name__})", "name them: --hardware"
        )
    try:
        return _probed(library, environment if environment is not None else os.environ)
    except Exception as error:  # a driver that is older than a call, a GPU that fell off the bus
        return UnknownFact(
            _WHAT, f"the NVIDIA driver does not say ({type(error).__name__}: {error})"
        )
    finally:
        library.nvmlShutdown()


def _probed(library: Any, environment: Mapping[str, str]) -> Hardware | UnknownFact:
    gpus: list[Gpu] = []
    capabilities: list[int] = []
    for index in _visible(library, environment):
        handle = library.nvmlDeviceGetHandleByIndex(index)
        memory = library.nvmlDeviceGetMemoryInfo(handle)
        major, minor = library.nvmlDeviceGetCudaComputeCapability(handle)
        capabilities.append(major * 10 + minor)
        name = _text(library.nvmlDeviceGetName(handle))
        processes = tuple(_process(one) for one in _processes(library, handle))
        gpus.append(Gpu(index, name, memory.total, memory.free, processes))
    if not gpus:
        return UnknownFact(_WHAT, "CUDA_VISIBLE_DEVICES leaves no GPU", None)
    least = min(gpus, key=lambda gpu: gpu.memory_bytes)
    return Hardware(
        least.name,
        Vendor.NVIDIA,
        len(gpus),
        least.memory_bytes // _MIB,
        min(capabilities),
        _text(library.nvmlSystemGetDriverVersion()),
        tuple(gpus),
        declared=False,
    )


def _visible(library: Any, environment: Mapping[str, str]) -> list[int]:
    """Indices and (beginnings of) UUIDs; CUDA stops at the first entry that it does not know."""
    count = int(library.nvmlDeviceGetCount())
    said = environment.get("CUDA_VISIBLE_DEVICES")
    if said is None:
        return list(range(count))
    ids = [
        _text(library.nvmlDeviceGetUUID(library.nvmlDeviceGetHandleByIndex(i)))
        for i in range(count)
    ]
    found: list[int] = []
    for entry in (part.strip() for part in said.split(",")):
        if entry.isdigit() and int(entry) < count:
            found.append(int(entry))
        elif entry.startswith("GPU-") and any(one.startswith(entry) for one in ids):
            found.append(next(i for i, one in enumerate(ids) if one.startswith(entry)))
        else:
            break
    return list(dict.fromkeys(found))


def _processes(library: Any, handle: Any) -> list[Any]:
    found = list(library.nvmlDeviceGetComputeRunningProcesses(handle))
    return list({process.pid: process for process in found}.values())


def _process(process: Any) -> OtherProcess:
    import psutil  # noqa: PLC0415

    try:
        name = psutil.Process(process.pid).name()
    except psutil.Error:  # of another container, or gone
        name = "?"
    used = process.usedGpuMemory
    return OtherProcess(process.pid, name, used if isinstance(used, int) else None)


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
