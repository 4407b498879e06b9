"""Reads this machine: memory, disks, limits, compilers, a port. No privileges needed."""

from __future__ import annotations

import contextlib
import math
import os
import resource
import shutil
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from speclaunch.doctor.machine_facts import (
    MachineMemory,
    Port,
    ProcessLimits,
    Tools,
    Volume,
    VolumeUse,
)
from speclaunch.errors import LaunchError
from speclaunch.launch.free_port import require_free

_CGROUPS = Path("/sys/fs/cgroup")
_NEARBY = 20
_PRIVILEGED = 1023
"""Up to this port only root may listen."""
_DEVICES = {"NVIDIA": "/dev/nvidiactl", "AMD": "/dev/kfd"}


def read_memory() -> MachineMemory:
    """Main memory and processors, with what a control group allows."""
    memory = psutil.virtual_memory()
    limit, used = _memory_limit()
    cpus = float(len(os.sched_getaffinity(0)))
    quota = _cpu_quota()
    return MachineMemory(
        memory.total,
        memory.available,
        limit if limit is not None and limit < memory.total else None,
        used,
        min(cpus, quota) if quota else cpus,
        os.cpu_count() or 1,
    )


def read_limits() -> ProcessLimits:
    """The limits that a process started from here would have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ProcessLimits(
        _limit(soft),
        _limit(hard),
        _limit(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]),
        _limit(resource.getrlimit(resource.RLIMIT_NPROC)[0]),
    )


def read_volume(use: VolumeUse, path: Path) -> Volume:
    """The disk of a directory, or of the nearest one above it that exists. Raises OSError."""
    place, hidden = path, False
    while place.parent != place:
        try:
            place.stat()
            break
        except (FileNotFoundError, NotADirectoryError):
            place = place.parent
        except PermissionError:
            place, hidden = place.parent, True
    usage = shutil.disk_usage(place)
    writable = not hidden and os.access(place, os.W_OK)
    return Volume(use, path, place.stat().st_dev, usage.free, usage.total, writable)


def read_tools(env: Mapping[str, str]) -> Tools:
    """The compilers that the engine would find."""
    path = env.get("PATH", os.defpath)
    compiler = shutil.which(env.get("CXX", "c++"), path=path) or shutil.which("g++", path=path)
    return Tools(
        Path(compiler) if compiler else None,
        _nvcc(env, path),
        _compat(env),
        tuple(maker for maker, file in _DEVICES.items() if Path(file).exists()),
    )


def read_port(host: str, number: int) -> Port:
    """Whether an engine could listen there."""
    address = _local_address(host)
    try:
        require_free(address, number)
    except LaunchError as error:
        taken = error.problems[0].message
        return Port(host, number, taken, _holder(number), _free(address, number))
    return Port(host, number)


def _local_address(host: str) -> str:
    """Return an address to listen on, without a DNS query for a name that a recipe has: a name
    counts as all interfaces."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError, ValueError):
            socket.inet_pton(family, host)
            return host
    return "127.0.0.1" if host == "localhost" else "0.0.0.0"  # noqa: S104


def _holder(number: int) -> int | None:
    with contextlib.suppress(psutil.Error, OSError):
        for one in psutil.net_connections(kind="tcp"):
            if one.status == psutil.CONN_LISTEN and one.laddr and one.laddr[1] == number:
                return one.pid
    return None


def _free(host: str, number: int) -> int | None:
    """A port after a taken one that is free; None where nothing can listen on the host at all."""
    first = max(number, _PRIVILEGED) + 1
    for nearby in range(first, min(first + _NEARBY, 65536)):
        with contextlib.suppress(LaunchError, OSError, socket.gaierror):
            require_free(host, nearby)
            return nearby
    return None


def _limit(value: int) -> int | None:
    return None if value == resource.RLIM_INFINITY else value


def _memory_limit() -> tuple[int | None, int | None]:
    """The smallest limit of the control groups that this process is in, and its use."""
    found: list[tuple[int, int | None]] = []
    for directory in _groups("memory"):
        for limit_file, used_file in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit = _number(directory / limit_file)
            if limit is not None:
                found.append((limit, _number(directory / used_file)))
    return min(found, key=lambda one: one[0], default=(None, None))


def _cpu_quota() -> float | None:
    """Processors that the control groups allow; None: no quota."""
    found: list[float] = []
    for directory in _groups("cpu"):
        with contextlib.suppress(OSError, ValueError):
            quota, period = (directory / "cpu.max").read_text().split()
            found.append(int(quota) / int(period))
        quota_v1 = _number(directory / "cpu.cfs_quota_us")
        period_v1 = _number(directory / "cpu.cfs_period_us")
        if quota_v1 and period_v1 and quota_v1 > 0:
            found.append(quota_v1 / period_v1)
    return min(found, default=None)


def _groups(controller: str) -> Iterator[Path]:
    """The directories of this process's control groups, its own first, versions 1 and 2.

    Inside a container the path in /proc may be that of the host: the root is looked at as well.
    """
    roots = {_CGROUPS: "", _CGROUPS / controller: ""}
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                roots[_CGROUPS] = path
            elif controller in controllers.split(","):
                roots[_CGROUPS / controller] = path
    for root, path in roots.items():
        here = root / path.lstrip("/")
        while True:
            if here.is_dir():
                yield here
            if here == root or root not in here.parents:
                break
            here = here.parent


def _number(path: Path) -> int | None:
    try:
        value = int(path.read_text())
    except (OSError, ValueError):  # not there, or `max`
        return None
    return value if math.fabs(value) < 1 << 62 else None  # version 1 has a huge number for none


def _nvcc(env: Mapping[str, str], path: str) -> Path | None:
    """As torch and the engine look for it: CUDA_HOME, PATH, /usr/local/cuda."""
    home = env.get("CUDA_HOME") or env.get("CUDA_PATH")
    found = shutil.which("nvcc", path=path)
    candidates = [Path(home) / "bin" / "nvcc"] if home else []
    candidates += [Path(found)] if found else []
    candidates.append(Path("/usr/local/cuda/bin/nvcc"))
    return next((place for place in candidates if place.is_file()), None)


def _compat(env: Mapping[str, str]) -> bool:
    """Whether CUDA's forward-compatibility libraries are there (`cuda-compat`)."""
    places = [Path("/usr/local/cuda/compat")]
    places += [Path(part) for part in env.get("LD_LIBRARY_PATH", "").split(":") if "compat" in part]
    return any(place.is_dir() for place in places)
