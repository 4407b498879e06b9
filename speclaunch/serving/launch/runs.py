"""Launches on this machine: holders of ports and GPUs, free ports, and the launches' journals."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import socket
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
from msgspec import Struct
from msgspec.structs import asdict

from speclaunch.core import (
    InputError,
    LaunchError,
    make_private,
    read_json,
    speclaunch_home,
    try_lock,
)
from speclaunch.serving.launch.journal import FILE, JournalHeader, LaunchState, default_directory


class Holder(Struct, frozen=True):
    """A speclaunch process that supervises an engine."""

    pid: int
    recipe: str
    since: float
    """Start of the process, in seconds since the epoch."""
    run: str
    """Run directory of the launch."""
    address: str = ""

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"{self.recipe}, process {self.pid}, since {since}"


def lock_directory() -> Path:
    """Return the directory of the lock files."""
    return speclaunch_home() / "state" / "locks"


class HeldLock:
    """Locked file. `close` releases the lock, as the kernel does when the process ends."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path, self._fd = path, fd

    def close(self) -> None:
        """Release the lock and remove its file."""
        with contextlib.suppress(OSError):
            self._path.unlink()
        os.close(self._fd)


def acquire(name: str, holder: Holder) -> HeldLock | Holder | None:
    """Return the acquired lock `name`, or the launch that holds it; None if locks are unsupported.

    A full file system, or one without locks, must not prevent an engine from starting.
    """
    path = lock_directory() / f"{name}.json"
    try:
        make_private(path.parent)
        tries = 5  # a process that lists launches holds a lock for a moment
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            is_locked = try_lock(fd)
            if is_locked and _same_file(path, fd):
                break
            os.close(fd)  # if locked, its holder removed it between our two calls
            if is_locked is None:
                return None
            if is_locked is False:
                tries -= 1
                if not tries:
                    return _read_holder(path) or Holder(0, "another speclaunch", time.time(), "")
                time.sleep(0.01)
        os.ftruncate(fd, 0)
        os.write(fd, json.dumps(asdict(holder)).encode())
    except OSError:
        return None
    return HeldLock(path, fd)


class Held(contextlib.ExitStack):
    """All locks of one launch."""

    def take(self, names: Mapping[str, str], holder: Holder) -> None:
        """Acquire the locks `names` (a mapping from lock to description).

        On failure, releases the locks acquired so far and raises LaunchError, naming the holder.
        """
        for name, what in names.items():
            lock = acquire(name, holder)
            if isinstance(lock, Holder):
                self.close()
                raise LaunchError(
                    f"{what} is in use by another launch: {lock}", help=_remedy(name, lock)
                )
            if lock is not None:
                self.callback(lock.close)


def running_launches() -> Iterator[Holder]:
    """Yield every running launch, oldest first; remove leftovers of ended launches."""
    found: list[Holder] = []
    for path in sorted(lock_directory().glob("run-*.json")):
        holder = _running_holder(path)
        if holder is not None:
            found.append(holder)
    yield from sorted(found, key=lambda holder: holder.since)


def _running_holder(path: Path) -> Holder | None:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        is_locked = try_lock(fd)
        if is_locked:
            with contextlib.suppress(OSError):
                path.unlink()
        return _read_holder(path) if is_locked is False else None
    finally:
        os.close(fd)


def _remedy(name: str, holder: Holder) -> str:
    run = Path(holder.run).name
    stop = f"or end the launch: speclaunch stop {run}" if run else "or end that launch"
    if name.startswith("port-"):
        return f"choose another port: args.port=…; {stop}"
    return f"choose other GPUs (CUDA_VISIBLE_DEVICES, args.base_gpu_id), or share: \
launch.share_gpus=true; {stop}"


def _same_file(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except OSError:
        return False


def _read_holder(path: Path) -> Holder | None:
    document: dict[str, Any] | None = None
    for _ in range(20):  # it is locked a moment before its holder is written
        document = read_json(path)
        if document is not None:
            break
        time.sleep(0.01)
    try:
        return Holder(**(document or {}))
    except TypeError:
        return None


class Run(Struct, frozen=True):
    """One launch. `document` is its journal, or empty if the journal is missing or unreadable."""

    directory: Path
    document: Mapping[str, Any]
    holder: Holder | None
    """speclaunch process that supervises the launch; None if it has ended."""

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def state(self) -> LaunchState:
        """State of the launch. An unfinished launch without a supervisor is lost."""
        with contextlib.suppress(ValueError):
            recorded = LaunchState(str(self.document.get("state")))
            if recorded is LaunchState.ENDED or self.holder is not None:
                return recorded
        return LaunchState.STARTING if self.holder is not None else LaunchState.LOST

    @property
    def header(self) -> JournalHeader:
        return JournalHeader.read(self.document)

    @property
    def recipe(self) -> str:
        """Name of the recipe; the run's name if the journal does not record the recipe."""
        return self.header.recipe.name or self.name

    @property
    def attempts(self) -> list[Mapping[str, Any]]:
        return self._entries("attempts")

    @property
    def events(self) -> list[Mapping[str, Any]]:
        return self._entries("events")

    def _entries(self, name: str) -> list[Mapping[str, Any]]:
        found = self.document.get(name)
        return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []

    @property
    def log(self) -> Path | None:
        """Log of the launch's last engine; None if no engine was started."""
        name = self.attempts[-1].get("log") if self.attempts else None
        return self.directory / Path(str(name)).name if name else None

    def section(self, name: str) -> Mapping[str, Any]:
        """Return a section of the journal; empty if the section is missing."""
        found = self.document.get(name)
        return found if isinstance(found, dict) else {}


def list_runs(directory: Path | None = None) -> list[Run]:
    """Return the launches in a directory, oldest first. Without `directory`, return those in the
    default directory and running launches elsewhere."""
    holders = {Path(holder.run): holder for holder in running_launches()}
    paths = {path for path in holders if directory is None or path.parent == directory}
    base = directory or default_directory()
    if base.is_dir():
        paths |= {path for path in base.iterdir() if _is_run(path)}
    found = [Run(path, read_json(path / FILE) or {}, holders.get(path)) for path in paths]
    return sorted(found, key=lambda run: (str(run.document.get("started", "")), run.name))


def find_run(name: str, directory: Path | None = None, *, alive: bool = False) -> Run:
    """Return the launch with this name, process id or port, or the newest launch of this recipe.

    `name` may be `last` (the newest launch). `alive`: search only running launches. Raises
    InputError if none matches.
    """
    runs = [run for run in list_runs(directory) if run.holder is not None or not alive]
    for matches in (
        [run for run in runs if run.name == name],
        [run for run in runs if run.holder and name == str(run.holder.pid)],
        [run for run in runs if run.holder and run.holder.address.endswith(f":{name}")],
        [run for run in runs if name in (run.recipe, "last")],
    ):
        if matches:
            return matches[-1]
    if not runs and not alive:
        where = directory or default_directory()
        raise InputError(
            f"no launch is recorded in {where}", help="start a launch: speclaunch recipe=NAME"
        )
    what = "no engine of that name is running" if alive else "no launch of that name is recorded"
    from speclaunch.engine import suggest  # noqa: PLC0415 - for a mistake

    hint = suggest(name, [run.name for run in runs])
    listing = "list them with `speclaunch ps`" if alive else "list them with `speclaunch runs`"
    raise InputError(f"{name}: {what}", help=hint or listing)


def reread_run(run: Run) -> Run:
    """Return the current state of the same launch."""
    holders = {Path(holder.run): holder for holder in running_launches()}
    return Run(run.directory, read_json(run.directory / FILE) or {}, holders.get(run.directory))


def prune(keep: int, directory: Path | None = None) -> list[Run]:
    """Remove and return all ended launches except the newest `keep`. Running launches, and
    directories without a journal, are unchanged."""
    # Only a directory with a journal is certainly ours to remove.
    over = [run for run in list_runs(directory) if run.holder is None and run.document]
    removed = []
    for run in over[: max(0, len(over) - keep)]:
        with contextlib.suppress(OSError):
            shutil.rmtree(run.directory)
            removed.append(run)
    return removed


def _is_run(path: Path) -> bool:
    """True for a run directory, named like `20261121-100400-name`."""
    stamped = re.match(r"\d{8}-\d{6}-.", path.name, re.DOTALL) is not None
    return stamped and path.is_dir() and not path.is_symlink()


_FIRST = 20000
_LAST = 32768
"""Exclusive end of the ports to choose from. By default, Linux assigns this and higher ports to
outgoing connections."""
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_returned: set[int] = set()


def free_port() -> int:
    """Return a port without a listener, a different port on each call.

    It is below the range that the kernel assigns to outgoing connections. Such a connection could
    take the port before the engine binds it, which happens only after loading. Raises LaunchError
    if all ports are taken.
    """
    ports = list(set(range(_FIRST, _first_outgoing())) - _returned)
    random.shuffle(ports)
    for port in ports:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            _returned.add(port)
            return port
    raise LaunchError("no port is free for an engine", help="set a port: args.port=…")


def _first_outgoing() -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        found = int(_RANGE.read_text().split()[0])
        if found > _FIRST:
            return found
    return _LAST


def require_free(host: str, port: int) -> None:
    """Raise LaunchError if `host`:`port` cannot be bound.

    The engine notices only after it has loaded everything, and then hangs instead of exiting
    (measured on 0.5.23).
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, OverflowError) as error:
        raise LaunchError(f"cannot listen on {host}:{port}: {error}") from error
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen(1)
        except OSError as error:
            holder = None
            with contextlib.suppress(psutil.Error, OSError):  # this user may not see the holder
                holder = _named(listeners(port))
            raise LaunchError(
                f"cannot listen on {host}:{port}: {error.strerror}"
                + (f" (held by {holder})" if holder else ""),
                help=f"choose another port: args.port=…, or stop the process on port {port}",
            ) from error


def other_listener(port: int, ours: Collection[int]) -> str | None:
    """Describe the listener on `port` if it is not one of the processes `ours`; else return None.

    A free port can be taken while the weights load. Another server then answers instead of the
    engine.
    """
    try:
        pids = listeners(port)
    except (psutil.Error, OSError):  # unknown
        return None
    if not pids or any(pid in ours for pid in pids):
        return None
    return _named(pids) or "a process of another user"


def listeners(port: int) -> list[int | None]:
    """Return the ids of processes listening on `port`; None for those this user cannot inspect."""
    return [
        connection.pid
        for connection in psutil.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN
        and connection.laddr
        and connection.laddr[1] == port
    ]


def _named(pids: Iterable[int | None]) -> str | None:
    for pid in pids:
        if pid:
            return f"{psutil.Process(pid).name()}, process {pid}"
    return None
