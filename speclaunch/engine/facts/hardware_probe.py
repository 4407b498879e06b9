"""Probes this machine's memory, and its GPUs through NVIDIA's NVML."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from speclaunch.engine.facts.facts import UnknownFact
from speclaunch.engine.facts.hardware import Gpu, Hardware, OtherProcess, Vendor

_WHAT = "the GPUs of this machine"
_NAME_THEM = "set --hardware, for example h100-80gb:8"
_MIB = 1 << 20
_CGROUP = Path("/sys/fs/cgroup")
_NODES = Path("/sys/devices/system/node")


class _NotVisibleError(Exception):
    """Error: CUDA would see no GPU. The message states the reason."""


def probe_hardware(
    library: Any = None, environment: Mapping[str, str] | None = None
) -> Hardware | UnknownFact:
    """Return the NVIDIA GPUs that CUDA_VISIBLE_DEVICES allows, or why they are unknown.

    `library` is `pynvml`, or a replacement in tests. If GPUs differ, the result has the
    least memory and the lowest capability, because every rank gets the same settings.
    """
    if library is None:
        try:
            library = import_module("pynvml")
        except ImportError:
            return UnknownFact(_WHAT, "nvidia-ml-py is not installed", _NAME_THEM)
    try:
        library.nvmlInit()
    except Exception as error:  # NVMLError_LibraryNotFound, _DriverNotLoaded, …
        return UnknownFact(
            _WHAT,
            f"no NVIDIA GPU or driver found ({type(error).__name__}); other vendors are not probed",
            _NAME_THEM,
        )
    try:
        return _probed(library, os.environ if environment is None else environment)
    except _NotVisibleError as error:
        return UnknownFact(_WHAT, str(error))
    except Exception as error:  # a driver older than a call, a GPU that fell off the bus
        return UnknownFact(
            _WHAT, f"the NVIDIA driver did not answer ({type(error).__name__}: {error})", _NAME_THEM
        )
    finally:
        with contextlib.suppress(Exception):
            library.nvmlShutdown()


def probe_host() -> Hardware:
    """Return this machine as the hardware of a CPU engine.

    Each NUMA node serves a rank and has an equal share of the memory. Total and available
    memory are limited by the control group, as the engine reads them
    (`get_free_cpu_memory`, sglang 0.5.23 utils/common.py).
    """
    import psutil  # noqa: PLC0415

    host = psutil.virtual_memory()
    total, free = int(host.total), int(host.available)
    limit, used = (_cgroup_number(name) for name in ("memory.max", "memory.current"))
    if limit is not None and used is not None:
        total, free = min(total, limit), min(free, max(0, limit - used))
    nodes = len(list(_NODES.glob("node[0-9]*"))) or 1
    memory = tuple(Gpu(node, "memory", total // nodes, free // nodes) for node in range(nodes))
    return Hardware("cpu", Vendor.CPU, 1, gpus=memory, declared=False)


def _cgroup_number(name: str) -> int | None:
    """Return a byte count of this process's control group (version 2); None without a limit."""
    try:
        text = (_CGROUP / name).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _probed(library: Any, environment: Mapping[str, str]) -> Hardware:
    gpus: list[Gpu] = []
    capabilities: list[int] = []
    for index in _visible(library, environment):
        handle = library.nvmlDeviceGetHandleByIndex(index)
        total, free = _memory(library, handle)
        major, minor = library.nvmlDeviceGetCudaComputeCapability(handle)
        capabilities.append(major * 10 + minor)
        name = _text(library.nvmlDeviceGetName(handle))
        gpus.append(Gpu(index, name, total, free, _processes(library, handle)))
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
    """Return the indices of the GPUs that CUDA_VISIBLE_DEVICES names, by index or UUID prefix.
    Stops at the first unknown entry, like CUDA.

    Indices follow bus order, as in nvidia-smi. CUDA's default order (CUDA_DEVICE_ORDER) is by
    speed, which differs only if a machine has different GPUs.
    """
    count = int(library.nvmlDeviceGetCount())
    if count == 0:
        raise _NotVisibleError("the NVIDIA driver sees no GPU")
    setting = environment.get("CUDA_VISIBLE_DEVICES")
    if setting is None:
        return list(range(count))
    ids: list[str] = []
    if "GPU-" in setting:
        handles = [library.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        ids = [_text(library.nvmlDeviceGetUUID(handle)) for handle in handles]
    found: list[int] = []
    for entry in (part.strip() for part in setting.split(",")):
        if entry.startswith("MIG-"):
            raise _NotVisibleError(
                "CUDA_VISIBLE_DEVICES names a slice of a GPU (MIG), which is not probed"
            )
        known = [
            i for i, uuid in enumerate(ids) if entry.startswith("GPU-") if uuid.startswith(entry)
        ]
        if entry.isascii() and entry.isdigit() and len(entry) < 4 and int(entry) < count:
            known = [int(entry)]
        if len(known) != 1:
            break
        if known[0] in found:  # CUDA rejects a list with duplicates
            return _none(setting)
        found += known
    return found or _none(setting)


def _none(setting: str) -> list[int]:
    raise _NotVisibleError(f"CUDA_VISIBLE_DEVICES={setting[:100]} leaves no GPU visible")


def _memory(library: Any, handle: Any) -> tuple[int, int | None]:
    """Return a GPU's total and free bytes. A GPU without separate memory (GB10) uses the host's."""
    try:
        memory = library.nvmlDeviceGetMemoryInfo(handle)
    except Exception as error:
        if "NotSupported" not in type(error).__name__:
            raise
        import psutil  # noqa: PLC0415

        host = psutil.virtual_memory()
        return int(host.total), int(host.available)
    return int(memory.total), int(memory.free)


def _processes(library: Any, handle: Any) -> tuple[OtherProcess, ...]:
    try:
        found = list(library.nvmlDeviceGetComputeRunningProcesses(handle))
    except Exception:  # not permitted in a container, not supported by the board
        return ()
    by_id = {process.pid: process for process in found}
    return tuple(_process(process) for process in by_id.values())


def _process(process: Any) -> OtherProcess:
    import psutil  # noqa: PLC0415

    try:
        name = psutil.Process(process.pid).name()
    except psutil.Error:  # in another container, or ended
        name = "?"
    used = process.usedGpuMemory
    return OtherProcess(process.pid, name, used if isinstance(used, int) else None)


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
