"""Facts about this machine (memory, disks, models, …), read without privileges."""

from __future__ import annotations

import contextlib
import math
import os
import resource
import shutil
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path, PurePath

import psutil
from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import LaunchError, read_regular
from speclaunch.engine import OFFLINE, TRUE, Checkpoint, UnknownFact, expanded, hub_cache, hub_home
from speclaunch.serving.doctor.facts import (
    DiskVolume,
    Hub,
    LocalModel,
    MachineMemory,
    Port,
    Process,
    ProcessLimits,
    Tools,
    VolumeUse,
)
from speclaunch.serving.launch.guard import RUN_VARIABLE
from speclaunch.serving.launch.runs import listeners, require_free

_CGROUPS = Path("/sys/fs/cgroup")
_NEARBY = 20
_PRIVILEGED = 1023
"""Highest port that only root may listen on."""
_DEVICES = {"NVIDIA": "/dev/nvidiactl", "AMD": "/dev/kfd"}


def read_memory() -> MachineMemory:
    """Return the main memory and the processor count, with the limits of the control groups."""
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
    """Return the resource limits that a started engine inherits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ProcessLimits(
        _limit(soft),
        _limit(hard),
        _limit(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]),
        _limit(resource.getrlimit(resource.RLIMIT_NPROC)[0]),
    )


def read_volume(use: VolumeUse, path: Path) -> DiskVolume:
    """Return the disk that holds `path`, which may not exist yet. Raises OSError."""
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
    return DiskVolume(use, path, place.stat().st_dev, usage.free, usage.total, writable)


def read_tools(env: Mapping[str, str]) -> Tools:
    """Return the compilers, CUDA libraries and GPU devices that an engine finds."""
    path = env.get("PATH", os.defpath)
    compiler = shutil.which(env.get("CXX", "c++"), path=path) or shutil.which("g++", path=path)
    return Tools(
        Path(compiler) if compiler else None,
        _nvcc(env, path),
        _compat(env),
        tuple(maker for maker, file in _DEVICES.items() if Path(file).exists()),
    )


def read_port(host: str, number: int) -> Port:
    """Return a port's availability; if refused, also the reason and a free port nearby."""
    address = _local_address(host)
    try:
        require_free(address, number)
    except LaunchError as error:
        holder = None
        with contextlib.suppress(psutil.Error, OSError):
            holder = next(iter(listeners(number)), None)
        return Port(host, number, error.problems[0].message, holder, _free(address, number))
    return Port(host, number)


def _local_address(host: str) -> str:
    """Return the IP address to listen on, without DNS; 0.0.0.0 for names other than `localhost`."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError, ValueError):
            socket.inet_pton(family, host)
            return host
    return "127.0.0.1" if host == "localhost" else "0.0.0.0"  # noqa: S104


def _free(host: str, number: int) -> int | None:
    first = max(number, _PRIVILEGED) + 1
    for nearby in range(first, min(first + _NEARBY, 65536)):
        with contextlib.suppress(LaunchError, OSError, socket.gaierror):
            require_free(host, nearby)
            return nearby
    return None


def _limit(value: int) -> int | None:
    return None if value == resource.RLIM_INFINITY else value


def _memory_limit() -> tuple[int | None, int | None]:
    """Return the smallest memory limit of this process's control groups, and that group's use, in
    bytes. Both are None without a limit; the use is None if unknown."""
    found: list[tuple[int, int | None]] = []
    for directory in _groups("memory"):
        for limit_file, used_file in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit = _number(directory / limit_file)
            if limit is not None:
                found.append((limit, _number(directory / used_file)))
    return min(found, key=lambda limit_and_use: limit_and_use[0], default=(None, None))


def _cpu_quota() -> float | None:
    """Return the control groups' CPU quota, in processors; None without a quota."""
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
    """Yield this process's cgroup directories (versions 1 and 2) for `controller`, innermost first.

    Inside a container, /proc may show the host's path, so the cgroup root is included as well.
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
    except (OSError, ValueError):  # missing, or `max`
        return None
    return value if math.fabs(value) < 1 << 62 else None  # version 1: no limit is a huge number


def _nvcc(env: Mapping[str, str], path: str) -> Path | None:
    home = env.get("CUDA_HOME") or env.get("CUDA_PATH")
    found = shutil.which("nvcc", path=path)
    candidates = [Path(home) / "bin" / "nvcc"] if home else []
    candidates += [Path(found)] if found else []
    candidates.append(Path("/usr/local/cuda/bin/nvcc"))
    return next((place for place in candidates if place.is_file()), None)


def _compat(env: Mapping[str, str]) -> bool:
    """True if CUDA's forward-compatibility libraries exist (`cuda-compat`)."""
    places = [Path("/usr/local/cuda/compat")]
    places += [Path(part) for part in env.get("LD_LIBRARY_PATH", "").split(":") if "compat" in part]
    return any(place.is_dir() for place in places)


_WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")
_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


def read_hub(env: Mapping[str, str], home: Path) -> Hub:
    """Return the hub settings for the environment `env` and the user's `home` (huggingface_hub
    constants.py)."""
    return Hub(
        hub_cache(env, home),
        _token(env, hub_home(env, home)),
        next((name for name in OFFLINE if _is_true(env.get(name))), None),
        _is_true(env.get("SGLANG_USE_MODELSCOPE")),
    )


def read_model(
    role: str, name: str, hub: Hub, made: Path, known: Checkpoint | UnknownFact | None = None
) -> LocalModel:
    """Return the local state of a checkpoint. `made`: directory of the tiny models. `known`: the
    checkpoint's facts, or why they are unknown."""
    model = LocalModel(
        role,
        name,
        checkpoint=known if isinstance(known, Checkpoint) else None,
        unknown=known if isinstance(known, UnknownFact) else None,
    )
    if "://" in name:
        return replace(model, is_url=True)
    try:
        path = _as_path(model, expanded(name, Path()), made)
    except OSError:  # it exists, but this user may not read it
        return replace(model, is_path=True, readable=False)
    return path or _in_cache(model, hub.cache / f"models--{name.replace('/', '--')}")


def _as_path(model: LocalModel, path: Path, made: Path) -> LocalModel | None:
    """Return the model with the state of its directory or file; None for a hub name. Raises
    OSError."""
    found = replace(model, is_path=True)
    if path.is_file():  # a GGUF file
        return replace(found, present=True, weight_files=True)
    if path.is_dir():
        has_config = (path / "config.json").is_file()
        return replace(found, present=has_config, weight_files=_weights(path))
    if path.parent == made:
        return replace(found, generated=True)
    means_path = model.name.startswith(("/", "~", "./", "../")) or model.name.count("/") > 1
    return found if means_path else None


def _in_cache(model: LocalModel, folder: Path) -> LocalModel:
    unfinished, size = _unfinished(folder)
    model = replace(model, unfinished=unfinished, unfinished_bytes=size)
    try:
        snapshots = [file.parent for file in folder.glob("snapshots/*/config.json")]
        complete = any(_weights(snapshot) for snapshot in snapshots)
    except OSError:
        return replace(model, readable=False)
    # a configuration alone was only inspected, never downloaded completely
    return replace(model, present=complete, weight_files=complete if snapshots else None)


def _weights(directory: Path) -> bool:
    return any(file.name.endswith(_WEIGHTS) for file in directory.iterdir())


def _token(env: Mapping[str, str], base: Path) -> str | None:
    """Return the name of the variable or the path of the file with the hub token; None without
    one."""
    for name in _TOKENS:
        if env.get(name, "").strip():
            return name
    chosen = env.get("HF_TOKEN_PATH")
    path = expanded(chosen, base) if chosen else base / "token"
    with contextlib.suppress(OSError):
        if read_regular(path).strip():
            return str(path)
    return None


def _unfinished(folder: Path) -> tuple[int, int]:
    sizes: list[int] = []
    with contextlib.suppress(OSError):
        for file in folder.glob("blobs/*.incomplete"):
            sizes.append(file.stat().st_size)
    return len(sizes), sum(sizes)


def _is_true(text: str | None) -> bool:
    return text is not None and text.strip().lower() in TRUE


_TITLE = "sglang::"
"""Title prefix of the engine's own processes: sglang::scheduler_TP0, sglang::detokenizer (0.4.6 and
later)."""
_MODULES = frozenset({"sglang.launch_server", "sglang.srt.entrypoints.http_server"})
_DEFAULT_PORT = 30000
_COMMANDS = frozenset({"sglang", "sglang.cli.main"})
_GUARD = "speclaunch/serving/launch/guard.py"
_ADOPTERS = frozenset({"systemd", "init", "tini", "dumb-init", "docker-init"})


class Custody(StrEnum):
    """Supervision state of an engine."""

    SPECLAUNCH = "speclaunch"
    """A running launch supervises the engine, and stops it when the launch ends."""
    PARENT = "parent"
    """The engine's parent is the process that started it."""
    SERVICE = "service"
    """The engine was meant to run without a parent: as a service, as a container's main process,
    or with setsid."""
    LEFT_OVER = "left over"
    """The engine's parent has exited, and the engine was not meant to run without one."""
    ZOMBIE = "zombie"


class EngineTree(Struct, frozen=True):
    """Processes of an engine: the topmost process (`root`), and all that belong to it."""

    root: Process
    members: tuple[Process, ...]
    custody: Custody
    keeper: int | None = None
    """ID of the process that supervises the engine (for a zombie, its parent); None if there is
    none."""

    @property
    def port(self) -> int | None:
        """Port on which the engine serves, if any; ports for internal use are excluded."""
        configured = _option(self.root.argv, "--port") or str(_DEFAULT_PORT)
        listening = {port for member in self.members for port in member.ports}
        return int(configured) if configured.isdigit() and int(configured) in listening else None


def read_processes() -> tuple[Process, ...]:
    """Return every visible process, with more detail for engine processes."""
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
    # slower to read, for engines only: their ports and their marks
    ports = _ports() if any(map(is_engine, found)) else {}
    return tuple(
        replace(process, run=_mark(process.pid), ports=tuple(sorted(ports.get(process.pid, ()))))
        if is_engine(process)
        else process
        for process in found
    )


def _ports() -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections(kind="tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.pid and connection.laddr:
                found.setdefault(connection.pid, set()).add(connection.laddr[1])
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


def engines(processes: Iterable[Process]) -> tuple[EngineTree, ...]:
    """Return every engine on the machine, ordered by process id."""
    table = {process.pid: process for process in processes}
    trees: dict[int, list[Process]] = {}
    for process in table.values():
        if is_engine(process):
            root = next((p for p in reversed(_line_of(process, table)) if is_engine(p)), process)
            trees.setdefault(root.pid, []).append(process)
    return tuple(
        EngineTree(
            table[pid], tuple(sorted(members, key=lambda p: p.pid)), *_custody(table[pid], table)
        )
        for pid, members in sorted(trees.items())
    )


def is_engine(process: Process) -> bool:
    """True if a process is an SGLang server or a server's child."""
    if process.name.startswith(_TITLE):
        return True
    argv = process.argv
    if not argv:
        return False
    if argv[0].startswith((_TITLE, "sglang.launch_server")):
        return True
    program = PurePath(argv[0]).name
    if program.startswith("python"):
        return _runs_server(argv)
    return program == "sglang" and "serve" in argv[1:2]


def _option(argv: Sequence[str], flag: str) -> str | None:
    value = None
    for index, word in enumerate(argv):
        if word == flag:
            value = next(iter(argv[index + 1 :]), None)
        elif word.startswith(f"{flag}="):
            value = word.partition("=")[2]
    return value


def may_end(process: Process, user: str) -> bool:
    """True if `user` may end the process: its owner and root may."""
    return user in ("root", process.user)


def _runs_server(argv: Sequence[str]) -> bool:
    """True for `python [options] -m sglang.launch_server …` or `python …/bin/sglang serve …`."""
    for index, word in enumerate(argv[1:], 1):
        following = argv[index + 1] if index + 1 < len(argv) else ""
        if word == "-m":
            serves = tuple(argv[index + 2 : index + 3]) == ("serve",)
            return following in _MODULES or (following in _COMMANDS and serves)
        if not word.startswith("-"):
            path = PurePath(word)
            if path.name == "sglang":
                return following == "serve"
            if path.parts[-2:] == ("sglang", "launch_server.py"):
                return True
    return False


def _custody(root: Process, table: Mapping[int, Process]) -> tuple[Custody, int | None]:
    if root.zombie:
        return Custody.ZOMBIE, root.parent
    for ancestor in _line_of(root, table):
        if any(word.endswith(_GUARD) for word in ancestor.argv):
            return Custody.SPECLAUNCH, ancestor.parent
    parent = table.get(root.parent)
    # an unlisted parent is invisible to this user, not gone
    adopted = root.parent <= 1 or (parent is not None and parent.name in _ADOPTERS)
    if not adopted:
        return Custody.PARENT, root.parent
    return (Custody.SERVICE if _runs_by_itself(root, table) else Custody.LEFT_OVER), None


def _runs_by_itself(root: Process, table: Mapping[int, Process]) -> bool:
    """True if a process was meant to run without a parent.

    A process started by a service manager or with setsid leads its own session. A container's main
    process is in the session of process 1. An orphan's session has lost its leader.
    """
    if root.pid == 1:
        return True
    if root.run is not None or _is_part(root):
        return False
    return root.session is None or root.session == root.pid or root.session in table


def _is_part(process: Process) -> bool:
    """True for a process that only runs as part of a server, such as a scheduler."""
    return process.name.startswith(_TITLE) or bool(
        process.argv and process.argv[0].startswith(_TITLE)
    )


def _line_of(process: Process, table: Mapping[int, Process]) -> list[Process]:
    """Return the ancestors of a process, its parent first."""
    found: list[Process] = []
    seen = {process.pid}
    current = table.get(process.parent)
    while current is not None and current.pid not in seen:
        found.append(current)
        seen.add(current.pid)
        current = table.get(current.parent)
    return found
