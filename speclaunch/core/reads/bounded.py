"""Reads untrusted files and streams within limits, without waiting forever.

A name may lead to a device, a named pipe, a socket or an endless file. Only regular files are read.
Streams are read up to a size limit and a time limit.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from typing import BinaryIO

MAX_BYTES = 10 << 20
"""Size limit of a text file: a script, manifest, baseline or journal."""
STREAM_SECONDS = 600
"""Seconds to wait for the end of a stream that is not a terminal."""
_CHUNK = 1 << 20
MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EBADF})
"""Error numbers of a path that does not exist."""

AnyPath = str | os.PathLike[str]


class IrregularFileError(OSError):
    """Error: the name leads to a directory, a device, a pipe or a socket."""


class TooLargeError(OSError):
    """Error: the file or stream is larger than the limit."""

    def __init__(self, path: AnyPath, limit: int, size: int | None = None) -> None:
        found = "" if size is None else f"it has {size} bytes, "
        most = f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit} bytes"
        super().__init__(errno.EFBIG, f"{found}more than {most}", os.fspath(path))


def read_regular(path: AnyPath, limit: int = MAX_BYTES) -> bytes:
    """Return the bytes of a regular file. Raises OSError.

    Raises IrregularFileError for any other kind of file, and TooLargeError for more than `limit`
    bytes.
    """
    return read_with_status(path, limit)[0]


def read_or_none(path: AnyPath) -> bytes | None:
    """Return the bytes of a regular file; None if it cannot be read."""
    try:
        return read_regular(path)
    except OSError:
        return None


def read_with_status(path: AnyPath, limit: int = MAX_BYTES) -> tuple[bytes, os.stat_result]:
    """Return the bytes of a regular file, and its status before the read."""
    handle, found = open_regular(path)
    try:
        if found.st_size > limit:
            raise TooLargeError(path, limit, found.st_size)
        part = data = os.read(handle, min(found.st_size, limit) + 1)
        while part and len(data) <= limit:
            part = os.read(handle, min(limit + 1 - len(data), _CHUNK))
            data += part
    finally:
        os.close(handle)
    if len(data) > limit:  # it grew, or is a kernel file, which has no size
        raise TooLargeError(path, limit)
    return data, found


def open_regular(path: AnyPath, *, pipes: bool = False) -> tuple[int, os.stat_result]:
    """Open a regular file for reading, and return its descriptor and status.

    Raises OSError, and IrregularFileError for any other kind of file. `pipes`: also accept a pipe,
    which is empty if no program writes to it. Never waits for a pipe's writer.
    """
    try:
        _refuse_irregular(path, os.stat(path), pipes=pipes)  # opening some devices has effects
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, str(error), os.fspath(path)) from None
    try:
        found = os.fstat(handle)
        _refuse_irregular(path, found, pipes=pipes)
        if stat.S_ISFIFO(found.st_mode):
            os.set_blocking(handle, True)
    except BaseException:
        os.close(handle)
        raise
    return handle, found


def _refuse_irregular(path: AnyPath, found: os.stat_result, *, pipes: bool) -> None:
    if stat.S_ISREG(found.st_mode) or (pipes and stat.S_ISFIFO(found.st_mode)):
        return
    what = "is a directory" if stat.S_ISDIR(found.st_mode) else "not a regular file"
    raise IrregularFileError(errno.EINVAL, what, os.fspath(path))


def read_stream(stream: BinaryIO, limit: int = MAX_BYTES, seconds: float = STREAM_SECONDS) -> bytes:
    """Return the complete contents of a stream, such as standard input.

    Raises TooLargeError for more than `limit` bytes, and TimeoutError if it is not a terminal and
    does not end within `seconds`.
    """
    import select  # noqa: PLC0415

    name = "<stdin>"
    try:
        handle, is_terminal = stream.fileno(), stream.isatty()
    except (OSError, ValueError):  # a stream in memory
        data = stream.read(limit + 1)
        if len(data) > limit:
            raise TooLargeError(name, limit) from None
        return data
    ends = time.monotonic() + seconds
    parts: list[bytes] = []
    size = 0
    while size <= limit:
        left = ends - time.monotonic()
        if not is_terminal and (left <= 0 or not select.select([handle], [], [], left)[0]):
            raise TimeoutError(errno.ETIMEDOUT, f"no end of input after {seconds:g} s", name)
        data = os.read(handle, min(limit + 1 - size, _CHUNK))
        if not data:
            return b"".join(parts)
        parts.append(data)
        size += len(data)
    raise TooLargeError(name, limit)


def is_endless(stream: BinaryIO) -> bool:
    """True for a device such as `/dev/zero`, but not for a terminal or `/dev/null`."""
    try:
        found = os.fstat(stream.fileno())
        is_device = stat.S_ISCHR(found.st_mode) and not stream.isatty()
        return is_device and found.st_rdev != os.stat(os.devnull).st_rdev
    except (OSError, ValueError):  # a stream in memory
        return False


def reason(error: OSError) -> str:
    """Return why a file could not be read, as a phrase for a message."""
    if error.errno in MISSING:
        return "no such file"
    return error.strerror or str(error)
