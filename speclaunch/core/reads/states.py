"""States of recorded reads, as short strings, and the check that they are unchanged."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable

from speclaunch.core.reads.bounded import MISSING, AnyPath, read_regular

KIND, CONTENT, NAMES, SIZE, REAL, LINK = "kcnsrl"
"""Kinds of reads: the kind of a path (file, directory, absent), a file's content, the names in a
directory, a file's size, a resolved path, and whether a name exists (even as a broken link)."""
CHANGED, READABLE, RUNNABLE, VARIABLE, ENGINE = "maxve"
"""More kinds of reads: the modification time of a path, this user's permission to read it and to
run it, an environment variable, and the installed engine."""

ABSENT = "-"
FILE, DIRECTORY, _OTHER = "f", "d", "o"
FAILED = "!"
"""Prefix of the error number in the state of a failed read."""
_UNSETTLED_NS = 3_000_000_000
"""Nanoseconds after a change during which a file may change again without a new timestamp. Network
and FAT file systems have a resolution of up to 2 s."""
NO_DIGEST = "-"


def digest(data: bytes) -> str:
    """Return a collision-resistant digest of bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def kind(path: AnyPath) -> str:
    """Return the state of a path: file, directory, other, absent, or a failure."""
    try:
        mode = os.stat(path).st_mode
    except ValueError:  # a NUL in the path
        return ABSENT
    except OSError as error:
        return failure(error)
    if stat.S_ISREG(mode):
        return FILE
    return DIRECTORY if stat.S_ISDIR(mode) else _OTHER


def failure(error: OSError) -> str:
    """Return the state of a failed read: missing, or the error number of any other failure."""
    return ABSENT if error.errno in MISSING else f"{FAILED}{error.errno or 0}"


def names(found: list[str]) -> str:
    """Return the state of the sorted names in a directory."""
    return digest("\0".join(found).encode("utf-8", "surrogateescape"))


def is_settled(found: os.stat_result) -> bool:
    """True if a file has not changed recently, so its stamp would show another change."""
    return found.st_ctime_ns < time.time_ns() - _UNSETTLED_NS


def stamp(found: os.stat_result) -> str:
    """Return a file's size, times and inode number. Any change of content changes one of them."""
    return f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_ino}"


def stamp_in(state: str) -> str:
    """Return the stamp in a state that `content` made."""
    return state.rsplit(" ", 2)[0]


def content(found: os.stat_result, file_digest: str | None) -> str:
    """Return the state of a file that was read. `file_digest` is None if only a part was read."""
    return f"{stamp(found)} {int(is_settled(found))} {file_digest or NO_DIGEST}"


def variable(name: str) -> str:
    """Return the state of an environment variable: a digest, or `ABSENT` if it is not set."""
    found = os.environ.get(name)
    return ABSENT if found is None else digest(f"{name}={found}".encode("utf-8", "surrogateescape"))


def _state(look: Callable[[str], str]) -> Callable[[str], str]:
    def state(name: str) -> str:
        try:
            return look(name)
        except OSError as error:
            return failure(error)
        except ValueError:
            return ABSENT

    return state


LOOKS: dict[str, Callable[[str], str]] = {
    KIND: kind,
    NAMES: _state(lambda name: names(sorted(os.listdir(name)))),
    SIZE: _state(lambda name: str(os.stat(name).st_size)),
    REAL: _state(os.path.realpath),
    LINK: _state(lambda name: str(int(os.path.lexists(name)))),
    CHANGED: _state(lambda name: str(os.lstat(name).st_mtime_ns)),
    READABLE: _state(lambda name: str(int(os.access(name, os.R_OK)))),
    RUNNABLE: _state(lambda name: str(int(os.access(name, os.X_OK)))),
    VARIABLE: variable,
}


class Now:
    """The current state of recorded reads. Each path is read only once for all results.

    `installed`: returns the installed engine's catalogue version; called only if a read needs it.
    """

    def __init__(self, installed: Callable[[], str | None]) -> None:
        self._states: dict[tuple[str, str], str] = {}
        self._holds: dict[tuple[str, str, str], bool] = {}
        self._installed = installed

    def holds(self, kind: str, name: str, state: str) -> bool:
        """True if repeating a read would give the same state."""
        key = (kind, name, state)
        found = self._holds.get(key)
        if found is None:
            found = self._holds[key] = self._is_so(kind, name, state)
        return found

    def _is_so(self, kind: str, name: str, state: str) -> bool:
        if kind == CONTENT:
            return _holds_content(name, state)
        if kind == ENGINE:
            return (self._installed() or ABSENT) == state
        look = LOOKS.get(kind)
        if look is None:
            return False
        at = (kind, name)
        if at not in self._states:
            self._states[at] = look(name)
        return self._states[at] == state


def _holds_content(path: str, state: str) -> bool:
    before, settled, stored_digest = state.rsplit(" ", 2)
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            return False
        if settled == "1" and stamp(found) == before:
            return True
        if stored_digest == NO_DIGEST or str(found.st_size) != before.partition(" ")[0]:
            return False
        return digest(read_regular(path, found.st_size)) == stored_digest
    except (OSError, ValueError):
        return False
