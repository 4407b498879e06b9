"""How what was seen is written down: a short text for each kind of look."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable
from typing import TypeAlias

AnyPath: TypeAlias = str | os.PathLike[str]

KIND, CONTENT, NAMES, SIZE, REAL, LINK = "kcnsrl"
CHANGED, READABLE, RUNNABLE, VARIABLE, ENGINE = "maxve"
"""What is looked at: whether there is a file or a directory, what is in a file, which names are in
a directory, the size of a file, a path without links, whether anything (a link, too) has a name,
when a name changed, whether this user may read or run it, a variable of the environment, and the
engine that is installed."""

ABSENT = "-"
FILE, DIRECTORY, _OTHER = "f", "d", "o"
FAILED = "!"
"""Before the number of an error."""
_UNSETTLED_NS = 3_000_000_000
"""A file that changed less than 3 s ago may change again without a new time stamp: those of
network and FAT file systems count in steps of up to 2 s."""
NO_DIGEST = "-"


def digest(data: bytes) -> str:
    """A digest that nobody can find a second text for."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def kind(path: AnyPath) -> str:
    """Whether there is a file or a directory, as `Path.is_file` and its like tell it."""
    try:
        mode = os.stat(path).st_mode
    except ValueError:  # a NUL in it
        return ABSENT
    except OSError as error:
        return failure(error)
    if stat.S_ISREG(mode):
        return FILE
    return DIRECTORY if stat.S_ISDIR(mode) else _OTHER


def failure(error: OSError) -> str:
    """Why nothing was seen: nothing is there, or the number of another error."""
    gone = (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP)
    return ABSENT if error.errno in gone else f"{FAILED}{error.errno or 0}"


def names(found: list[str]) -> str:
    """Of the sorted names in a directory."""
    return digest("\0".join(found).encode("utf-8", "surrogateescape"))


def is_settled(found: os.stat_result) -> bool:
    """Whether a file changed long enough ago for its stamp to tell the next change."""
    return found.st_ctime_ns < time.time_ns() - _UNSETTLED_NS


def stamp(found: os.stat_result) -> str:
    """Size, times and number of a file: whoever changes its content changes one of them."""
    return f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_ino}"


def stamp_in(state: str) -> str:
    """The stamp in what `content` gave."""
    return state.rsplit(" ", 2)[0]


def content(found: os.stat_result, told: str | None) -> str:
    """Of a file that was read: `told` is the digest of all of it, where all was read."""
    return f"{stamp(found)} {int(is_settled(found))} {told or NO_DIGEST}"


def variable(name: str) -> str:
    """A digest of an environment variable and its name."""
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
