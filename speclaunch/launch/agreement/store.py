"""The shared directory: files that appear whole, once, or not at all; over NFS, too.

Exclusive creation is `link(2)`: the server decides it, in one step, for all hosts. The answer of a
link may be lost on the way and the call said to have failed; whether it was done stands in the
number of links of our own file (as `open(2)` advises). Every call names its path anew, so that a
handle that went stale is looked up again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import uuid
from pathlib import Path
from typing import Protocol

_TEMPORARY = ".tmp-"
_MOST_BYTES = 1 << 20
"""Of a record."""
_OF_ONE_FILE = frozenset({errno.EACCES, errno.EPERM, errno.EISDIR, errno.ELOOP, errno.ENXIO})
"""Errors of a file that say nothing of the directory."""
_LINKS = "choose a directory on a file system with hard links (NFS, Lustre, a local disk)"
_HELP = {
    errno.ENOSPC: "free space on it",
    errno.EDQUOT: "free space on it",
    errno.EROFS: "mount it writable",
    errno.EACCES: "give this user the right to write there",
    errno.EPERM: _LINKS,
    errno.ENOTSUP: _LINKS,
    errno.ESTALE: "mount it again",
}


class StoreError(Exception):
    """The directory could not be read or written. `help`: what would let it."""

    def __init__(self, what: str, error: OSError, path: Path) -> None:
        reason = error.strerror or str(error)
        super().__init__(f"cannot {what} {path}: {reason}")
        self.help = _HELP.get(error.errno or 0, "check that it is mounted on every host")


class RecordError(Exception):
    """A file of the directory is no record; the text has its path and the reason."""


class Store(Protocol):
    """A directory that ranks share. All of it raises StoreError."""

    def create(self, name: str, data: bytes) -> bool:
        """Make a file that nobody has made; whether it was us."""

    def overwrite(self, name: str, data: bytes) -> None:
        """Write a file that is ours alone; all of its contents have one length."""

    def read(self, name: str) -> bytes | None:
        """The content of a file; None without it. Raises RecordError, too."""

    def names(self) -> list[str]:
        """The files."""

    def sweep(self, owner: str) -> None:
        """Remove what that one left unfinished, or everybody ("")."""


class DirectoryStore:
    """A store in a directory of a file system."""

    def __init__(self, path: Path, owner: str) -> None:
        """`owner`: who we are; unfinished files carry it in their name."""
        self._path, self._owner = path, owner

    def create(self, name: str, data: bytes) -> bool:
        """See Store."""
        temporary = self._written(data)
        try:
            try:
                os.link(temporary, self._path / name)
            except OSError as error:
                if temporary.stat().st_nlink == 2:
                    return True  # it was done, and the answer was lost
                if error.errno == errno.EEXIST:
                    return False
                raise
            return True
        except OSError as error:
            raise StoreError("create a file in", error, self._path) from error
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()

    def overwrite(self, name: str, data: bytes) -> None:
        """See Store. In the same file: whoever opens it is asked by NFS for what is there now,
        while a file that takes the place of another may be seen a minute later; and where the disk
        is full, its blocks are there."""
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(self._path / name, flags, 0o600)
            try:
                os.pwrite(fd, data, 0)
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise StoreError("write to", error, self._path) from error

    def read(self, name: str) -> bytes | None:
        """See Store."""
        path = self._path / name
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(path, flags), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise RecordError(f"{path} is not a regular file")
                data = file.read(_MOST_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in _OF_ONE_FILE:
                raise RecordError(f"cannot read {path}: {error.strerror}") from None
            raise StoreError("read", error, self._path) from error
        if len(data) > _MOST_BYTES:
            raise RecordError(f"{path} has more than {_MOST_BYTES >> 20} MiB")
        return data

    def names(self) -> list[str]:
        """See Store."""
        try:
            names = os.listdir(self._path)  # noqa: PTH208 - names are all that is wanted
            return [name for name in names if not name.startswith(_TEMPORARY)]
        except OSError as error:
            raise StoreError("list", error, self._path) from error

    def sweep(self, owner: str) -> None:
        """See Store. Who is writing such a file now writes it once more."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self._path):  # noqa: PTH208
                if name.startswith(f"{_TEMPORARY}{owner}"):
                    (self._path / name).unlink(missing_ok=True)

    def _written(self, data: bytes) -> Path:
        """A new file with this content, complete on the disk."""
        path = self._path / f"{_TEMPORARY}{self._owner}-{uuid.uuid4().hex[:12]}"
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with os.fdopen(fd, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())  # a full disk of a server is told here at the latest
            except OSError:
                with contextlib.suppress(OSError):
                    path.unlink()
                raise
        except OSError as error:
            raise StoreError("write to", error, self._path) from error
        return path


def make_directory(path: Path) -> None:
    """Make it, with all above it, for this user only. Raises StoreError."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreError("create", error, path) from error
