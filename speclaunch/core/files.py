"""Speclaunch's own files: their home, atomic writes, kernel locks, and small cached entries."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins

from speclaunch.core.errors import InputError
from speclaunch.core.reads.bounded import read_regular
from speclaunch.core.reads.states import digest


def speclaunch_home() -> Path:
    """Return `SPECLAUNCH_HOME`, else a folder in the user's cache directory. Does not create it."""
    chosen = os.environ.get("SPECLAUNCH_HOME")
    if chosen:
        return expand_user(chosen).absolute()
    # The XDG base directory specification. platformdirs would return the same, but its import
    # alone takes longer than reading a catalogue.
    cache = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(cache) if cache.startswith("/") else Path.home() / ".cache"
    return base / "speclaunch"


def expand_user(path: str | Path) -> Path:
    """Return a path with `~` expanded. The path of an unknown user is unchanged, as in a shell."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


JUDGE_RECORD = "judge.json"
"""Name of the file that describes a judge, an installed release that validates arguments."""


def judges_home() -> Path:
    """Return the directory of installed judges, one folder each. Does not create it."""
    return speclaunch_home() / "judges"


def advisories_home() -> Path:
    """Return the directory of stored advisories and their pages. Does not create it."""
    return speclaunch_home() / "advisories"


class Distrust(Struct, frozen=True):
    """Reason not to use the files in a folder, and the remedy."""

    why: str
    help: str
    is_of_permissions: bool = True
    """False if the folder's owner is the reason."""


_ENTERED = stat.S_IXGRP | stat.S_IXOTH


def distrust(folder: Path, home: Path | None = None) -> Distrust | None:
    """Return why files in `folder` are not trusted: other users could have written them.

    None if only this user or root can write to the folder, or if it does not exist. `home`
    defaults to speclaunch's home.

    The home and its contents must belong to this user or root, and no other user may have write
    access. A group may have write access if the group is root's or this user's own (`umask 002`).
    Above the home, a world-writable folder needs the sticky bit, like `/tmp`. Permissions are not
    checked below a folder that only this user can enter.
    """
    top = Path(os.path.realpath(home or speclaunch_home()))
    place = Path(os.path.realpath(folder))
    is_private = False
    for directory in (*reversed(place.parents), place):
        try:
            seen = directory.stat()
        except OSError:  # it does not exist, or cannot be used anyway
            return None
        found = _distrust_of(directory, seen, is_own=directory == top or top in directory.parents)
        if found is not None and not (is_private and found.is_of_permissions):
            return found
        is_private = is_private or (seen.st_uid == os.geteuid() and not seen.st_mode & _ENTERED)
    return None


def require_own(folder: Path, what: str, home: Path | None = None) -> None:
    """Raise InputError, naming `what`, if other users could have written `folder` (`distrust`)."""
    found = distrust(folder, home)
    if found is not None:
        raise InputError(f"{what} is not executed: {found.why}", help=found.help)


def _distrust_of(place: Path, found: os.stat_result, *, is_own: bool) -> Distrust | None:
    another = "set SPECLAUNCH_HOME to a folder that you own"
    if is_own and found.st_uid not in (os.geteuid(), 0):
        why = f"{place} belongs to another user (uid {found.st_uid})"
        return Distrust(why, another, is_of_permissions=False)
    by_all = found.st_mode & stat.S_IWOTH and (is_own or not found.st_mode & stat.S_ISVTX)
    by_group = is_own and found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid)
    if by_all or by_group:
        return Distrust(f"other users can write to {place}", f"chmod go-w {place}, or {another}")
    return None


def _is_own_group(group: int) -> bool:
    """True for root's group, and for a group whose only member is this user."""
    if group == 0:
        return True
    import grp  # noqa: PLC0415 - few folders are writable by a group
    import pwd  # noqa: PLC0415

    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    is_named_so = found.gr_name == user.pw_name and user.pw_gid == group
    return is_named_so and set(found.gr_mem) <= {user.pw_name}


def make_private(folder: Path) -> None:
    """Create a folder and missing parents, accessible only to this user. Raises OSError."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for directory in reversed(missing):
        directory.mkdir(0o700, exist_ok=True)


def write_temporary(path: Path, data: bytes, mode: int) -> Path:
    """Write `data` to a temporary file next to `path`, and return the new file's path.

    Replaces a leftover temporary file or link. Raises OSError without leaving a file, also if
    `path` is a device, a pipe or a directory. `mode`: see `replacing`.
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
    """Write `data` to a temporary file, yield its path, and rename it to `path` after the block.

    After an error the old file is unchanged. Raises OSError. `mode`: permissions of the new file
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
    """Replace a file atomically (see `replacing`). Raises OSError."""
    with replacing(path, data.encode() if isinstance(data, str) else data, mode):
        pass


def json_value(value: object) -> Any:
    """Convert a value to JSON types.

    Records become mappings. Paths and instances of subclasses of `str` become plain strings.
    """
    return to_builtins(value, enc_hook=lambda v: dict(v) if isinstance(v, Mapping) else str(v))


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Replace a JSON document atomically, readable only by this user. Raises OSError."""
    replace_file(path, json.dumps(document, indent=1, default=str) + "\n")


def try_lock(fd: int, *, tries: int = 1) -> bool | None:
    """Try to lock an open file. Return True on success, and None if the file system has no locks.

    Return False if another process still holds the lock after `tries` attempts, 50 ms apart. The
    kernel unlocks the file when its last holder ends.
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
    """Lock the file `path` during the block, and yield its descriptor. Raises OSError.

    `waiting` is called once if another process holds the lock. A leftover lock file is harmless.
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


_ABANDONED_SECONDS = 3600
"""Age after which an unfinished file counts as abandoned."""
_TRIMMED_EACH = "0"
"""Adding an entry whose name ends with this digit (one in sixteen) trims its folder."""


class EntryFiles:
    """A cache of texts by hexadecimal name, each stored with its digest, in 256 folders.

    An entry is ignored if it is broken or belongs to another user. All entries are ignored if other
    users can write to the folder (`distrust`). `most_bytes` limits an entry. `most` and
    `most_bytes_of_all` limit the entries in a trimmed folder and their total size.
    """

    def __init__(self, folder: str, most_bytes: int, most: int, most_bytes_of_all: int) -> None:
        self._folder, self._most_bytes = folder, most_bytes
        self._most, self._most_bytes_of_all = most, most_bytes_of_all
        self._is_broken = False
        self._is_believed: bool | None = None  # unknown

    @property
    def is_believed(self) -> bool:
        """True if no other user could have written the entries."""
        if self._is_believed is None:
            self._is_believed = distrust(Path(self._folder)) is None
        return self._is_believed

    def get(self, name: str) -> bytes | None:
        """Return the content of an entry; None if it is missing or ignored."""
        if not self.is_believed:
            return None
        with contextlib.suppress(OSError, ValueError, MemoryError):
            data = read_entry(self._path(name), 2 * self._most_bytes)
            stored_digest, _, text = data.partition(b"\n")
            if stored_digest == digest(text).encode():
                return text
        return None

    def put(self, name: str, text: bytes) -> None:
        """Store `text` unless it is too large. Does nothing if the folder cannot be written."""
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
    """Return up to `most_bytes` bytes of an entry. Raises OSError, also if another user owns it."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise OSError("not owned by this user")
        return file.read(most_bytes)


def write_entry(path: Path, data: bytes) -> None:
    """Write an entry atomically, readable only by this user. Raises OSError."""
    try:
        replace_file(path, data)
    except FileNotFoundError:
        make_private(path.parent)
        replace_file(path, data)


def trim_entries(folder: str, most: int, most_bytes: int) -> None:
    """Delete the oldest entries beyond `most` entries or `most_bytes` in total. Raises OSError."""
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
