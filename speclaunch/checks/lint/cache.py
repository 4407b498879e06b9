"""Cache of lint results, valid while every input of a result is unchanged.

An entry is a small file, named by a digest of the known inputs: the linted file, the options, the
working directory, and this installation. It lists everything else that was read
(`speclaunch/core/reads/`) and is valid only while that is unchanged. A damaged entry, or another
user's, is treated as missing. Failed writes are ignored. The installed engine is also cached.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

from speclaunch import __version__
from speclaunch.core import (
    EntryFiles,
    Now,
    Reads,
    advisories_home,
    digest,
    reads,
    resources,
    speclaunch_home,
)

SWITCH = "SPECLAUNCH_NO_CACHE"
"""Environment variable that disables the cache, whatever its value."""
FOLDER = "lint"
_FORMAT = 3
_VARIABLES = (
    *("HOME", "SPECLAUNCH_HOME", "XDG_CACHE_HOME"),
    *("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"),
)
"""Environment variables that decide where facts are looked up; part of every key."""
_MOST_BYTES = 1 << 18
"""Maximum bytes of an entry; larger entries are not cached."""
_MOST_IN_FOLDER, _MOST_BYTES_IN_FOLDER = 60, 240 << 10
"""Maximum entries and bytes that a cleanup leaves in each of the 256 folders. The total remains
below 64 MiB and 20,000 entries."""

_BROKEN = (
    *(OSError, ValueError, TypeError, LookupError, AttributeError),
    *(RecursionError, MemoryError),
)
"""Errors raised by reading a damaged entry."""


class Cache:
    """Cached results in one folder, for one environment and set of options."""

    def __init__(self, folder: str, circumstances: str, now: Now) -> None:
        self._files = EntryFiles(folder, _MOST_BYTES, _MOST_IN_FOLDER, _MOST_BYTES_IN_FOLDER)
        self._circumstances, self._now = circumstances, now
        self.shipped = tuple(f"{directory}{os.sep}" for directory in resources.shipped())

    def name(self, *parts: bytes) -> str:
        """Return the cache key for the inputs `parts`."""
        inputs = (self._circumstances.encode(), *parts)
        return digest(b"".join(b"%d:%b" % (len(part), part) for part in inputs))

    def get(self, name: str) -> Any:
        with contextlib.suppress(*_BROKEN):
            text = self._files.get(name)
            if text is None:
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
        """Cache a value if the reads in `looked` can be repeated and `is_safe` accepts its text."""
        if not looked.repeatable:
            return
        seen = [[kind, path, state] for (kind, path), state in looked.seen.items()]
        text = json.dumps({"value": value, "reads": seen}, separators=(",", ":"))
        if is_safe(text):
            self._files.put(name, text.encode())


def opened(
    options: Sequence[object],
    installed: Callable[[Cache | None], str | None],
    *,
    enabled: bool = True,
) -> tuple[Cache | None, Callable[[], str | None]]:
    """Return the cache, or None if disabled, and a function that returns the installed engine."""
    without = None, functools.cache(lambda: installed(None))
    if not enabled or os.environ.get(SWITCH):
        return without
    try:
        context: list[object] = [_FORMAT, installation(), os.getcwd()]
    except OSError:  # the working directory was removed
        return without
    context += [os.environ.get(name) for name in _VARIABLES]
    folder = str(speclaunch_home() / FOLDER)
    for_engine = Cache(folder, json.dumps(context), Now(lambda: None))
    ask = functools.cache(lambda: installed(for_engine))
    return Cache(folder, json.dumps([context, *options]), Now(ask)), ask


def installation() -> str:
    """Return a digest that changes with speclaunch's files and the installed packages."""
    parts = [__version__, sys.version, sys.executable]
    for directory in sorted({*map(str, resources.shipped()), str(advisories_home())}):
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


@functools.cache
def installed_engine() -> str | None:
    """Return the installed engine's catalogue name, found once per process; None without one."""
    return remembered_engine(None)


def remembered_engine(cache: Cache | None) -> str | None:
    """Return the installed engine's catalogue name, cached if possible; None without one."""
    name = cache.name(b"installed engine") if cache is not None else ""
    if cache is not None:
        cached = cache.get(name)
        if isinstance(cached, list) and len(cached) == 1 and isinstance(cached[0], str | None):
            return cached[0]
    with reads.aside(cache.shipped if cache is not None else ()) as looked:
        found = _find()
    if cache is not None:
        cache.put(name, [found], looked)
    return found


def _find() -> str | None:
    """Return the installed engine's catalogue name; None if no usable engine is installed."""
    from speclaunch.engine import (  # noqa: PLC0415
        NoEngineError,
        find_runtime,
        installed_catalogue,
    )

    def meanwhile() -> None:
        """Import the modules needed next while the queried interpreters start."""
        for name in ("speclaunch.checks.lint.collect", "speclaunch.checks.lint.run"):
            import_module(name)

    try:
        return installed_catalogue(find_runtime(None, meanwhile=meanwhile))
    except NoEngineError as error:  # the newest release is assumed
        for why in error.failed:
            sys.stderr.write(f"note: engine unknown: {why}\n")
        return None
    except Exception:  # an engine without a catalogue: the newest release is assumed
        return None
