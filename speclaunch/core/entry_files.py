"""Small cache files by name: written atomically, validated on read, and limited in size."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from pathlib import Path

from speclaunch.core.files import make_private, replace_file
from speclaunch.core.home import distrust
from speclaunch.core.reads.states import digest

_ABANDONED_SECONDS = 3600
"""Age after which an unfinished file counts as abandoned."""
_TRIMMED_EACH = "0"
"""A new entry whose name ends with this digit trims its folder: one entry in sixteen."""


class EntryFiles:
    """Cached texts by name (hexadecimal digits), each stored with its digest, in 256 folders.

    An entry is ignored if it is missing or broken, or if other users could have written it: it
    belongs to another user, or other users can write to the folder (`home.distrust`). `most_bytes`:
    limit of an entry. `most`, `most_bytes_of_all`: entries and bytes left in a trimmed folder.
    """

    def __init__(self, folder: str, most_bytes: int, most: int, most_bytes_of_all: int) -> None:
        self._folder, self._most_bytes = folder, most_bytes
        self._most, self._most_bytes_of_all = most, most_bytes_of_all
        self._is_broken = False
        self._is_believed: bool | None = None  # unknown

    @property
    def is_believed(self) -> bool:
        """False if other users could have written the entries."""
        if self._is_believed is None:
            self._is_believed = distrust(Path(self._folder)) is None
        return self._is_believed

    def get(self, name: str) -> bytes | None:
        """Return the text of an entry; None if it is missing or ignored."""
        if not self.is_believed:
            return None
        with contextlib.suppress(OSError, ValueError, MemoryError):
            data = read_entry(self._path(name), 2 * self._most_bytes)
            stored_digest, _, text = data.partition(b"\n")
            if stored_digest == digest(text).encode():
                return text
        return None

    def put(self, name: str, text: bytes) -> None:
        """Store a text unless it is too large. Does nothing if the folder cannot be written."""
        if self._is_broken or not self.is_believed or len(text) > self._most_bytes:
            return
        path = self._path(name)
        try:
            write_entry(Path(path), digest(text).encode() + b"\n" + text)
            if name.endswith(_TRIMMED_EACH):
                trim_entries(os.path.dirname(path), self._most, self._most_bytes_of_all)
        except OSError:  # disk full, read-only or another user's: nothing is cached
            self._is_broken = True

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name[:2]}/{name[2:]}"


def read_entry(path: str, most_bytes: int) -> bytes:
    """Return the bytes of an entry that belongs to this user. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise OSError("not an entry of this user")
        return file.read(most_bytes)


def write_entry(path: Path, data: bytes) -> None:
    """Write an entry atomically, readable only by this user. Raises OSError."""
    try:
        replace_file(path, data)
    except FileNotFoundError:
        make_private(path.parent)
        replace_file(path, data)


def trim_entries(folder: str, most: int, most_bytes: int) -> None:
    """Delete the oldest entries until the folder is within its limits. Raises OSError."""
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
        if number >= most or size > most_bytes:
            with contextlib.suppress(OSError):
                os.unlink(path)
