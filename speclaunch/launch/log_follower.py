"""Reads a log file as it grows, also over its rotation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from speclaunch.reads.bounded import open_regular

_MOST_BYTES = 4 << 20
_LONGEST_LINE = 1 << 16
_HEAD_BYTES = 1 << 20
_TAIL_BYTES = 4 << 20
_UNFINISHED_BYTES = 4096


class Follower:
    """Reads what has been added to a growing log file, by whole lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._rest = b""
        self.is_behind = False
        """More was added than one call returns."""

    def lines(self) -> list[str]:
        """The lines that were completed since the last call, of 4 MiB at most; `is_behind` shows
        that there are more. A line longer than 64 KiB comes in pieces."""
        parts, left = [self._rest], _MOST_BYTES
        while self._file is not None or self._open():
            left -= self._read(parts, left)
            if left <= 0 or not self._rotated():
                break
            left -= self._read(parts, left)  # written between the read above and the rotation
            if left <= 0:
                break
            self.close()
        self.is_behind = left <= 0
        *lines, self._rest = b"".join(parts).replace(b"\r", b"\n").split(b"\n")
        if len(self._rest) >= _LONGEST_LINE:
            whole = len(self._rest) // _LONGEST_LINE * _LONGEST_LINE
            lines.append(self._rest[:whole])
            self._rest = self._rest[whole:]
        return [piece.decode(errors="replace") for line in lines for piece in _pieces(line)]

    @property
    def unfinished(self) -> str:
        """What stands after the last whole line: a progress bar that is drawn over, say."""
        return self._rest[-_UNFINISHED_BYTES:].decode(errors="replace")

    def close(self) -> None:
        """Let go of the file; the next call begins with the file of that name."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> bool:
        try:
            self._file = os.fdopen(open_regular(self._path)[0], "rb")
        except OSError:
            return False
        return True

    def _read(self, parts: list[bytes], most: int) -> int:
        """Append what was added to the file; its size."""
        file = self._file
        assert file is not None  # noqa: S101 - for the type checker
        try:
            if os.fstat(file.fileno()).st_size < file.tell():
                file.seek(0)  # it was emptied
            parts.append(file.read(most))
        except OSError:
            return 0
        return len(parts[-1])

    def _rotated(self) -> bool:
        """Whether another file has the name now. A file that is gone altogether is read on."""
        assert self._file is not None  # noqa: S101 - for the type checker
        try:
            now = self._path.stat()
        except OSError:
            return False
        return (now.st_dev, now.st_ino) != _identity(self._file)


def _pieces(line: bytes) -> Iterator[bytes]:
    for start in range(0, len(line), _LONGEST_LINE):
        yield line[start : start + _LONGEST_LINE]


def _identity(file: BinaryIO) -> tuple[int, int]:
    found = os.fstat(file.fileno())
    return (found.st_dev, found.st_ino)


def log_files(log: Path) -> list[Path]:
    """A log and the files that were put aside for it, the oldest first."""
    aside: list[tuple[int, Path]] = []
    try:
        for path in log.parent.iterdir():
            number = path.name.removeprefix(f"{log.name}.")
            if number != path.name and number.isdigit():
                aside.append((int(number), path))
    except OSError:
        return []
    found = [path for _, path in sorted(aside, reverse=True)]
    return [*found, log] if log.exists() else found


def read_log(log: Path) -> Iterator[str]:
    """The lines of a log, those put aside included; of a very long one its beginning and end."""
    files = log_files(log)
    if not files:
        return
    head, skipped = _read_part(files[0], 0, _HEAD_BYTES)
    data = head
    if skipped or len(files) > 1:
        tail = b""
        for path in reversed(files):
            offset = len(head) if path == files[0] else 0
            part, _ = _read_part(path, offset, _TAIL_BYTES - len(tail), from_end=True)
            tail = part + tail
            if len(tail) >= _TAIL_BYTES:
                break
        data = head + tail
    for line in data.replace(b"\r", b"\n").split(b"\n"):
        if line:
            yield line.decode(errors="replace")


def _read_part(path: Path, offset: int, size: int, *, from_end: bool = False) -> tuple[bytes, bool]:
    """At most `size` bytes of a file after `offset`; whether there is more than that."""
    try:
        with os.fdopen(open_regular(path)[0], "rb") as file:
            length = file.seek(0, 2)
            file.seek(max(offset, length - size) if from_end else offset)
            return file.read(size), length > offset + size
    except OSError:
        return b"", False
