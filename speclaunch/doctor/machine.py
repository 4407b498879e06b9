"""Reads this machine: memory, disks, limits, processes. No privileges needed."""

from __future__ import annotations

import contextlib
import math
import os
import resource
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from speclaunch.doctor.processes import is_engine
from speclaunch.doctor.surroundings import Limits, Memory, Process, Tools, Volume
from speclaunch.launch.guard import RUN_VARIABLE

_CGROUPS = Path("/sys/fs/cgroup")
_DEVICES = {"NVIDIA": "/dev/nvidiactl", "AMD": "/dev/kfd"}


def read_memory() -> Memory:
    """Main memory and processors, with what a control group allows."""
    memory = psutil.virtual_memory()
    limit, used = _memory_limit()
    cpus = float(len(os.sched_getaffinity(0)))
    quota = _cpu_quota()
    return Memory(
        memory.total,
        memory.available,
        limit if limit is not None and limit < memory.total else None,
        used,
        min(cpus, quota) if quota else cpus,
        os.cpu_count() or 1,
    )


def read_limits() -> Limits:
    """The limits that a process started from here would have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Limits(
        _limit(soft),
        _limit(hard),
        _limit(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]),
        _limit(resource.getrlimit(resource.RLIMIT_NPROC)[0]),
    )


def read_volume(what: str, path: Path) -> Volume:
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
    return Volume(what, path, place.stat().st_dev, usage.free, usage.total, writable)


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


def read_processes() -> tuple[Process, ...]:
    """Every process that may be seen; what an engine's own is, in more detail."""
    now = time.time()
    names = ["pid", "ppid", "name", "cmdline", "username", "status", "create_time"]
    found: list[Process] = []
    for item in psutil.process_iter(names):
        info = item.info
        process = Process(
            info["pid"],
            info["ppid"] or 0,
            info["name"] or "",
            tuple(info["cmdline"] or ()),
            info["username"] or "",
            info["status"] == psutil.STATUS_ZOMBIE,
            _session(info["pid"]),
            max(0.0, now - info["create_time"]) if info["create_time"] else None,
        )
        found.append(process)
    return tuple(_with_details(found))


def _with_details(processes: list[Process]) -> Iterator[Process]:
    """What takes longer to read, for the engines only: their ports and their marks."""
    ports = _ports() if any(is_engine(process) for process in processes) else {}
    for p in processes:
        if not is_engine(p):
            yield p
            continue
        yield Process(
            p.pid,
            p.parent,
            p.name,
            p.words,
            p.user,
            p.zombie,
            p.session,
            p.age_seconds,
            _mark(p.pid),
            tuple(sorted(ports.get(p.pid, ()))),
        )


def _ports() -> dict[int, set[int]]:
    """The TCP ports that each process listens on, as far as this user may see them."""
    found: dict[int, set[int]] = {}
    with contextlib.suppress(psutil.Error, OSError):
        for one in psutil.net_connections(kind="tcp"):
            if one.status == psutil.CONN_LISTEN and one.pid and one.laddr:
                found.setdefault(one.pid, set()).add(one.laddr[1])
    return found


def _mark(pid: int) -> str | None:
    mark = f"{RUN_VARIABLE}=".encode()
    try:
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if entry.startswith(mark):
                return entry.removeprefix(mark).decode(errors="replace")
    except OSError:
        pass
    return None


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
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
