"""What earlier lints found, kept where it can be trusted: by content, and by all it rests on.

An entry is a small file, named by a digest of everything that was known beforehand: the bytes of
the linted file, the options, the working directory, this installation. In it stands what was looked
at on the way (`speclaunch/reads/`): it counts only while all of that is as it was. An entry that is
missing, broken, or of another user is as good as none; what cannot be written is not kept.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from speclaunch import __version__, resources
from speclaunch.home import speclaunch_home
from speclaunch.reads import Reads
from speclaunch.reads.now import Now
from speclaunch.reads.states import digest

SWITCH = "SPECLAUNCH_NO_CACHE"
"""The variable that, set to anything, switches it off."""
FOLDER = "lint"
_FORMAT = 1
_VARIABLES = (
    *("HOME", "SPECLAUNCH_HOME", "XDG_CACHE_HOME"),
    *("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"),
)
"""Where facts are looked for: part of every name."""
_MOST_BYTES = 1 << 18
"""Of an entry; a larger one is not kept."""
_MOST_IN_FOLDER, _MOST_BYTES_IN_FOLDER = 60, 240 << 10
"""Of one of the 256 folders, when it is looked at: all have 64 MiB, and 20,000 entries."""
_TRIMMED_EACH = "0"
"""A folder is looked at when the name of a new entry ends so: one in sixteen."""
_ABANDONED_SECONDS = 3600
"""A file that was not finished by then never will be."""

_BROKEN = (
    *(OSError, ValueError, TypeError, LookupError, AttributeError),
    *(RecursionError, MemoryError),
)
"""What reading an entry can end in, whatever stands in it."""


class Cache:
    """The entries in one folder, for one set of circumstances."""

    def __init__(self, folder: str, circumstances: str, now: Now) -> None:
        self._folder, self._circumstances, self._now = folder, circumstances, now
        self._is_broken = False
        self.shipped = _shipped()

    def name(self, *parts: bytes) -> str:
        """The name of the entry for what is known beforehand."""
        said = (self._circumstances.encode(), *parts)
        return digest(b"".join(b"%d:%b" % (len(part), part) for part in said))

    def get(self, name: str) -> Any:
        """The value of an entry that still holds; None where there is none."""
        with contextlib.suppress(*_BROKEN):
            data = _read(self._path(name))
            told, _, text = data.partition(b"\n")
            if told != digest(text).encode():
                return None
            document = json.loads(text)
            if all(self._now.holds(kind, path, state) for kind, path, state in document["reads"]):
                return document["value"]
        return None

    def put(
        self,
        name: str,
        value: Any,
        looked: Reads,
        is_safe: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Keep a value, where it can be had again from what was looked at.

        `is_safe`: whether a text may be written down.
        """
        if self._is_broken or not looked.repeatable:
            return
        seen = [[kind, path, state] for (kind, path), state in looked.seen.items()]
        said = json.dumps({"value": value, "reads": seen}, separators=(",", ":"))
        text = said.encode()
        if len(text) > _MOST_BYTES or not is_safe(said):
            return
        path = self._path(name)
        try:
            _write(path, digest(text).encode() + b"\n" + text)
            if name.endswith(_TRIMMED_EACH):
                _trim(os.path.dirname(path))
        except OSError:  # full, read-only, somebody else's: every lint is the first one
            self._is_broken = True

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name[:2]}/{name[2:]}"


def opened(
    asked: Sequence[object],
    installed: Callable[[Cache | None], str | None],
    *,
    wanted: bool = True,
) -> tuple[Cache | None, Callable[[], str | None]]:
    """The cache for the options `asked`, and what tells the installed engine with its help."""
    without = None, functools.cache(lambda: installed(None))
    if not wanted or os.environ.get(SWITCH):
        return without
    try:
        around: list[object] = [_FORMAT, installation(), os.getcwd()]
    except OSError:  # it was removed
        return without
    around += [os.environ.get(name) for name in _VARIABLES]
    folder = str(speclaunch_home() / FOLDER)
    for_engine = Cache(folder, json.dumps(around), Now(lambda: None))
    ask = functools.cache(lambda: installed(for_engine))
    return Cache(folder, json.dumps([around, *asked]), Now(ask)), ask


def installation() -> str:
    """A digest that changes with any file of ours, and with what we are installed with."""
    parts = [__version__, sys.version, sys.executable]
    for directory in sorted(set(map(str, resources.shipped()))):
        parts += _stamps(directory)
    for directory in sys.path:
        if directory.endswith("-packages"):
            with contextlib.suppress(OSError):
                parts.append(f"{directory} {os.stat(directory).st_mtime_ns}")
    return digest("\n".join(parts).encode("utf-8", "surrogateescape"))


def _stamps(directory: str) -> Iterator[str]:
    try:
        with os.scandir(directory) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _stamps(entry.path)
        else:
            seen = entry.stat()
            yield f"{entry.path} {seen.st_mtime_ns} {seen.st_size} {seen.st_ino}"


def _shipped() -> tuple[str, ...]:
    return tuple(f"{directory}{os.sep}" for directory in resources.shipped())


def _read(path: str) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise OSError("not an entry of this user")
        return file.read(2 * _MOST_BYTES)


def _write(path: str, data: bytes) -> None:
    """Whole or not at all, also when this process is killed; for this user alone."""
    folder, name = os.path.split(path)
    beside = f"{folder}/.{name}.{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    try:
        handle = os.open(beside, flags, 0o600)
    except FileNotFoundError:
        Path(folder).parent.mkdir(0o700, parents=True, exist_ok=True)
        Path(folder).mkdir(0o700, exist_ok=True)
        handle = os.open(beside, flags, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(beside, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def _trim(folder: str) -> None:
    """Take the oldest entries away where there are too many."""
    entries: list[tuple[int, int, str]] = []
    with os.scandir(folder) as found:
        for entry in found:
            with contextlib.suppress(OSError):
                seen = entry.stat(follow_symlinks=False)
                age = time.time() - seen.st_mtime
                if not entry.name.startswith("."):
                    entries.append((seen.st_mtime_ns, seen.st_size, entry.path))
                elif age > _ABANDONED_SECONDS:
                    os.unlink(entry.path)
    size = 0
    for number, (_, bytes_, path) in enumerate(sorted(entries, reverse=True)):
        size += bytes_
        if number >= _MOST_IN_FOLDER or size > _MOST_BYTES_IN_FOLDER:
            with contextlib.suppress(OSError):
                os.unlink(path)
