"""Who holds a port or a GPU: files that are locked as long as their holder lives.

The lock is the kernel's (flock), so it ends with its holder, however that ends; a file that nobody
has locked is left over, whatever it says. What stands in the file is for people.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from speclaunch.errors import LaunchError
from speclaunch.home import make_private, speclaunch_home
from speclaunch.launch.atomic_files import read_json
from speclaunch.record import record


@record
class Holder:
    """A speclaunch that looks after an engine."""

    pid: int
    recipe: str
    since: float
    """Seconds since the epoch."""
    run: str
    """The directory of the launch."""
    address: str = ""

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"{self.recipe}, process {self.pid}, since {since}"


def lock_directory() -> Path:
    """Where the lock files are."""
    return speclaunch_home() / "state" / "locks"


class Lock:
    """One locked file. Close it to let go; the kernel does when the process ends."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path, self._fd = path, fd

    def close(self) -> None:
        """Let go, and leave no file behind."""
        with contextlib.suppress(OSError):
            self._path.unlink()
        os.close(self._fd)


def acquire(name: str, holder: Holder) -> Lock | Holder | None:
    """Lock `name`; the other holder where there is one, None where nothing can be locked here.

    A file system without locks, or one that is full, must not keep an engine from starting.
    """
    path = lock_directory() / f"{name}.json"
    try:
        make_private(path.parent)
        tries = 5  # whoever looks what is running holds a lock for a moment
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                tries -= 1
                if tries:
                    time.sleep(0.01)
                    continue
                return _read_holder(path) or Holder(0, "another speclaunch", time.time(), "")
            except OSError:
                os.close(fd)
                return None
            if _same_file(path, fd):
                break
            os.close(fd)  # its holder removed it between our two calls
        os.ftruncate(fd, 0)
        os.write(fd, json.dumps(asdict(holder)).encode())
    except OSError:
        return None
    return Lock(path, fd)


class Held(contextlib.ExitStack):
    """All locks of one launch."""

    def take(self, names: Mapping[str, str], holder: Holder) -> None:
        """Lock `names` (lock to what it is, for people); raises LaunchError that names who has one.

        Locks taken so far are let go then.
        """
        for name, what in names.items():
            lock = acquire(name, holder)
            if isinstance(lock, Holder):
                self.close()
                raise LaunchError(
                    f"{what} is in use by another launch: {lock}",
                    help=_remedy(name, lock),
                )
            if lock is not None:
                self.callback(lock.close)


def living() -> Iterator[Holder]:
    """Every launch that runs now, the oldest first; what others left over is removed."""
    found: list[Holder] = []
    for path in sorted(lock_directory().glob("run-*.json")):
        holder = _living(path)
        if holder is not None:
            found.append(holder)
    yield from sorted(found, key=lambda holder: holder.since)


def _living(path: Path) -> Holder | None:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_holder(path)
    except OSError:
        return None
    else:
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    finally:
        os.close(fd)


def _remedy(name: str, holder: Holder) -> str:
    run = Path(holder.run).name
    stop = f"`speclaunch stop {run}` ends it" if run else "`speclaunch ps` shows it"
    if name.startswith("port-"):
        return f"choose another port: args.port=…; {stop}"
    return f"choose other GPUs (CUDA_VISIBLE_DEVICES, args.base_gpu_id), or share: \
launch.share_gpus=true; {stop}"


def _same_file(path: Path, fd: int) -> bool:
    try:
        now, ours = path.stat(), os.fstat(fd)
    except OSError:
        return False
    return (now.st_dev, now.st_ino) == (ours.st_dev, ours.st_ino)


def _read_holder(path: Path) -> Holder | None:
    document: dict[str, Any] | None = None
    for _ in range(20):  # it is locked a moment before it says who locked it
        document = read_json(path)
        if document is not None:
            break
        time.sleep(0.01)
    try:
        return Holder(**(document or {}))
    except TypeError:
        return None
