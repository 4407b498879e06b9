"""Private files and folders, atomic writes, and kernel locks."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from speclaunch.core.reads.bounded import read_regular


def make_private(folder: Path) -> None:
    """Create a folder and missing parents, accessible only to this user. Raises OSError."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for directory in reversed(missing):
        directory.mkdir(0o700, exist_ok=True)


def write_temporary(path: Path, data: bytes, mode: int) -> Path:
    """Write `data` to a new temporary file next to `path`, and return it. Removes a leftover file
    or link in its place.

    Raises OSError and then leaves no file, also if `path` is a device, a pipe or a directory.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file")
    temporary = path.with_name(f".{path.name}.{threading.get_native_id()}")
    temporary.unlink(missing_ok=True)  # left by a killed thread with this number
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(temporary, flags, mode), "wb") as file:
            file.write(data)
    except BaseException:  # including KeyboardInterrupt
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return temporary


@contextmanager
def replacing(path: Path, data: bytes, mode: int = 0o600) -> Iterator[Path]:
    """Write `data` to a temporary file next to `path`, which replaces `path` after the block.

    After an error the old file is unchanged. Raises OSError. `mode`: permissions of a new file
    before the umask; by default only this user can read it.
    """
    temporary = write_temporary(path, data, mode)
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:  # including KeyboardInterrupt
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def replace_file(path: Path, data: bytes | str, mode: int = 0o600) -> None:
    """Replace a file atomically: readers see either the old or the new content (see
    `replacing`)."""
    with replacing(path, data.encode() if isinstance(data, str) else data, mode):
        pass


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Replace a JSON document atomically, readable only by this user. Raises OSError."""
    replace_file(path, json.dumps(document, indent=1, default=str) + "\n")


def try_lock(fd: int, *, tries: int = 1) -> bool | None:
    """Try to lock an open file. Return True on success, and None if the file system has no locks.

    Return False if another process holds the lock at each of `tries`, 50 ms apart. The kernel
    unlocks the file when its last holder ends.
    """
    for left in reversed(range(tries)):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if left:
                time.sleep(0.05)
        except OSError:
            return None
        else:
            return True
    return False


@contextmanager
def locked(path: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[int]:
    """Hold a lock file during the block, and yield its file descriptor. Raises OSError.

    `waiting` is called once if another process holds the lock. A leftover file is harmless.
    """
    make_private(path.parent)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if try_lock(fd) is False:
            waiting()
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield fd
    finally:
        os.close(fd)


@contextmanager
def undone_on_error(path: Path) -> Iterator[None]:
    """Restore a file's previous content if the block fails. Raises OSError."""
    before = read_regular(path) if path.exists() else None
    try:
        yield
    except BaseException:  # including KeyboardInterrupt
        if before is not None:
            replace_file(path, before, path.stat().st_mode & 0o777 if path.exists() else 0o600)
        raise
