"""Dependencies of a result: the files, directories and variables that were read for it.

Facts, recipes and the files that they refer to are read through these functions. During a
recording, each function notes the path and its state, even if the path is missing. `Now` later
checks whether all states are unchanged. Without a recording a function costs no more than the call
that it wraps.

Files that ship with speclaunch are not recorded individually: the stamp of the installation
represents them.
"""

from __future__ import annotations

import contextlib
import functools
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

from speclaunch.core.reads import states
from speclaunch.core.reads.bounded import MAX_BYTES, AnyPath, read_with_status
from speclaunch.core.reads.states import (
    ABSENT,
    CHANGED,
    CONTENT,
    DIRECTORY,
    ENGINE,
    FAILED,
    FILE,
    KIND,
    LINK,
    NAMES,
    NO_DIGEST,
    READABLE,
    REAL,
    RUNNABLE,
    SIZE,
    VARIABLE,
)

P = ParamSpec("P")
R = TypeVar("R")


class Reads:
    """Recorded reads with their states.

    `repeatable`: False if the result also depends on something that is not recorded.
    """

    __slots__ = ("repeatable", "seen", "shipped")

    def __init__(self, shipped: tuple[str, ...] = ()) -> None:
        self.shipped = shipped
        """Path prefixes of files that are not recorded, because they ship with speclaunch."""
        self.seen: dict[tuple[str, str], str] = {}
        self.repeatable = True

    def note(self, kind: str, name: str, state: str) -> None:
        """Record a read. If its state differs from an earlier read, the result is uncacheable."""
        before = self.seen.setdefault((kind, name), state)
        if before == state:
            return
        if kind == CONTENT and states.stamp_in(before) == states.stamp_in(state):
            if before.endswith(NO_DIGEST):
                self.seen[kind, name] = state
        else:
            self.repeatable = False

    def add(self, other: Reads) -> None:
        self.repeatable &= other.repeatable
        for (kind, name), state in other.seen.items():
            self.note(kind, name, state)


_recorder: Reads | None = None
"""The current recorder; None outside a recording. Only one thread may record at a time."""


@contextlib.contextmanager
def recording(shipped: tuple[str, ...] = ()) -> Iterator[Reads]:
    """Record the reads in the block, and add them to the enclosing recording, if any."""
    outer = _recorder
    with aside(shipped if outer is None else outer.shipped) as own:
        try:
            yield own
        finally:
            if outer is not None:
                outer.add(own)


@contextlib.contextmanager
def aside(shipped: tuple[str, ...] = ()) -> Iterator[Reads]:
    """Record the reads in the block without adding them to an enclosing recording."""
    global _recorder  # noqa: PLW0603
    outer, own = _recorder, Reads(shipped)
    _recorder = own
    try:
        yield own
    finally:
        _recorder = outer


def mark_uncacheable() -> None:
    """Mark the result as uncacheable, because it depends on data that cannot be checked again."""
    if _recorder is not None:
        _recorder.repeatable = False


_buffers: dict[str, bytes] = {}
"""Contents of files that are open in an editor, by resolved path."""


@contextlib.contextmanager
def overlay(buffers: Mapping[str, bytes]) -> Iterator[None]:
    """Use `buffers` (contents by resolved path) instead of the files during the block.

    Results that depend on a buffer cannot be checked again and must not be cached.
    """
    before = dict(_buffers)
    _buffers.update(buffers)
    try:
        yield
    finally:
        _buffers.clear()
        _buffers.update(before)


def buffer(path: AnyPath) -> bytes | None:
    """Return a file's content from the `overlay`; None if it is not overlaid."""
    if not _buffers:
        return None
    mark_uncacheable()
    return _buffers.get(os.path.realpath(path))


def forget() -> None:
    """Clear all function caches, so a long-lived process notices changed files."""
    for function in _all_cached:
        function.cache_clear()


class _CachedFunction(Generic[P, R]):
    """A function with cached results. Each use of a result records its reads again."""

    def __init__(self, function: Callable[P, R], maxsize: int) -> None:
        self._function, self._maxsize = function, maxsize
        _all_cached.add(self)
        self._results: dict[tuple[Any, ...], tuple[R, Reads | None]] = {}
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        key = (args, *kwargs.items())
        found = self._results.get(key)
        if found is not None and (_recorder is None or found[1] is not None):
            if _recorder is not None and found[1] is not None:
                _recorder.add(found[1])
            return found[0]
        if _recorder is None:
            value, looked = self._function(*args, **kwargs), None
        else:
            with recording() as looked:
                value = self._function(*args, **kwargs)
        if key not in self._results and len(self._results) >= self._maxsize:
            del self._results[next(iter(self._results))]
        self._results[key] = (value, looked)
        return value

    def cache_clear(self) -> None:
        self._results.clear()


_all_cached: weakref.WeakSet[_CachedFunction[Any, Any]] = weakref.WeakSet()


def cached(maxsize: int) -> Callable[[Callable[P, R]], _CachedFunction[P, R]]:
    """Return a decorator that caches up to `maxsize` results, each with its reads."""
    return lambda function: _CachedFunction(function, maxsize)


def is_file(path: AnyPath) -> bool:
    """Record and return `Path.is_file()`."""
    if buffer(path) is not None:
        return True
    return _looked(path) == FILE


def is_dir(path: AnyPath) -> bool:
    """Record and return `Path.is_dir()`."""
    return _looked(path) == DIRECTORY


def exists(path: AnyPath) -> bool:
    """Record and return `Path.exists()`."""
    if buffer(path) is not None:
        return True
    return _looked(path) != ABSENT


def _looked(path: AnyPath) -> str:
    found = states.kind(path)
    _note(KIND, path, found)
    if found.startswith(FAILED):
        number = int(found[1:])
        raise OSError(number, os.strerror(number), os.fspath(path))
    return found


def lexists(path: AnyPath) -> bool:
    """Record and return `os.path.lexists(path)`."""
    found = os.path.lexists(path)
    _note(LINK, path, str(int(found)))
    return found


def may_read(path: AnyPath) -> bool:
    """Record and return `os.access(path, os.R_OK)`."""
    found = os.access(path, os.R_OK)
    _note(READABLE, path, str(int(found)))
    return found


def may_run(path: AnyPath) -> bool:
    """Record and return `os.access(path, os.X_OK)`."""
    found = os.access(path, os.X_OK)
    _note(RUNNABLE, path, str(int(found)))
    return found


def resolve(path: Path) -> Path:
    """Record and return `Path.resolve()`."""
    if _recorder is None:
        return path.resolve()
    try:
        found = path.resolve()
    except (OSError, RuntimeError):
        mark_uncacheable()
        raise
    _note(REAL, path, str(found))
    return found


def realpath(path: str) -> str:
    """Record and return `os.path.realpath(path)`. Never raises."""
    found = os.path.realpath(path)
    _note(REAL, path, found)
    return found


def size(path: AnyPath) -> int:
    """Return the size of a file in bytes. Raises OSError."""
    if (held := buffer(path)) is not None:
        return len(held)
    try:
        found = os.stat(path).st_size
    except OSError as error:
        _note(SIZE, path, states.failure(error))
        raise
    _note(SIZE, path, str(found))
    return found


def changed(path: AnyPath) -> float:
    """Return the modification time of a path, in seconds since 1970. Raises OSError.

    Does not follow links.
    """
    try:
        found = os.lstat(path)
    except OSError as error:
        _note(CHANGED, path, states.failure(error))
        raise
    _note(CHANGED, path, str(found.st_mtime_ns))
    return found.st_mtime


def names(directory: AnyPath) -> list[str]:
    """Return the names in a directory, sorted. Raises OSError."""
    try:
        found = sorted(os.listdir(directory))
    except OSError as error:
        _note(NAMES, directory, states.failure(error))
        raise
    if _recorder is not None:
        _note(NAMES, directory, states.names(found))
    return found


def below(directory: Path, suffix: str) -> list[Path]:
    """Record and return `sorted(directory.glob("*SUFFIX"))`."""
    try:
        found = names(directory)
    except OSError:
        return []
    return [directory / name for name in found if name.endswith(suffix)]


def read_bytes(path: AnyPath, limit: int = MAX_BYTES) -> bytes:
    """Return the bytes of a regular file, like `bounded.read_regular`. Raises OSError."""
    if (held := buffer(path)) is not None:
        return held
    try:
        data, found = read_with_status(path, limit)
    except OSError as error:
        failed(path, error)
        raise
    content(path, found, data)
    return data


def read_text(path: AnyPath, limit: int = MAX_BYTES) -> str:
    r"""Return a UTF-8 file's text with `\n` newlines. Raises OSError and UnicodeDecodeError."""
    text = read_bytes(path, limit).decode("utf-8")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def failed(path: AnyPath, error: OSError) -> None:
    """Record that a file could not be opened. Errors other than a missing file are uncacheable."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        _note(KIND, path, ABSENT)
    else:
        mark_uncacheable()


def content(path: AnyPath, found: os.stat_result, data: bytes | None = None) -> None:
    """Record that a file was read. `found`: its status before the read. `data`: all its bytes.

    `data` is None if only a part was read. Then only the file's `stamp` can show a change.
    """
    if _recorder is None:
        return
    if data is None and not states.is_settled(found):
        _recorder.repeatable = False
    _note(CONTENT, path, states.content(found, None if data is None else states.digest(data)))


def variable(name: str) -> str | None:
    """Return an environment variable's value, recording only a digest; None if it is not set."""
    found = os.environ.get(name)
    if _recorder is not None:
        _recorder.note(VARIABLE, name, states.variable(name))
    return found


def engine(version: str | None) -> str | None:
    """Record and return `version`: the installed engine's catalogue version; None if no engine."""
    if _recorder is not None:
        _recorder.note(ENGINE, "", version or ABSENT)
    return version


def _note(kind: str, path: AnyPath, state: str) -> None:
    if _recorder is None:
        return
    name = os.fspath(path)
    if not name.startswith(_recorder.shipped):
        _recorder.note(kind, name, state)
