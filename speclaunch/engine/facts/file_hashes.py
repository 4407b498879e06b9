"""Digests of a checkpoint's files.

Each file is read once: its digest is cached with the file's size and modification time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct, ValidationError, convert

from speclaunch.core import (
    LaunchError,
    UnreadableFileError,
    locked,
    open_regular,
    read_json,
    read_start,
    speclaunch_home,
    write_json,
)

_MOST_DEEP = 4
_ENTRIES = 20_000
"""Maximum number of stored digests; the oldest are dropped."""
_THREADS = 4
_DESCRIBES = ".md"
"""Suffix of files that no engine reads."""


class HashedFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a checkpoint; `name` is relative to its directory."""

    name: str
    size: int
    hash: str
    """Digest of its content: `sha256:…`"""


def hash_files(path: Path, *, verify: bool = False) -> tuple[HashedFile, ...]:
    """Return the files in a checkpoint's directory, sorted by name. `path` may also be a single
    file.

    `verify`: read all files again. Raises LaunchError for a file that cannot be read.
    """
    stored = _stored()
    try:
        found = dict(_files(path)) if path.is_dir() else {path.name: path}
        states = {name: _state(file) for name, file in found.items()}
        due = {
            name: file
            for name, file in found.items()
            if verify or stored.get(os.path.realpath(file), ())[:2] != states[name]
        }
        with ThreadPoolExecutor(_THREADS) as pool:
            digests = dict(zip(due, pool.map(_digest, due.values()), strict=True))
    except OSError as error:
        raise LaunchError(f"cannot read {error.filename}: {error.strerror}") from error
    fresh = {
        os.path.realpath(file): (*states[name], digests[name])
        for name, file in due.items()
        if _state(file) == states[name]  # otherwise it changed during the read
    }
    if fresh:
        _store(fresh)
    return tuple(
        HashedFile(name, states[name][0], digests.get(name) or stored[os.path.realpath(file)][2])
        for name, file in sorted(found.items())
    )


def revision_of_files(directory: Path) -> str | None:
    """Return the hub commit that a directory was downloaded from; None if unknown.

    A snapshot in the hub's cache is named after its commit. `hf download --local-dir` writes it to
    `.cache/huggingface/download/FILE.metadata` (huggingface_hub 0.23 to 1.x, _local_folder.py).
    """
    if directory.parent.name == "snapshots":
        return directory.name
    note = directory / ".cache" / "huggingface" / "download" / "config.json.metadata"
    try:
        first = read_start(note, 100)[0].split(b"\n")[0].decode("ascii")
    except (UnreadableFileError, UnicodeDecodeError):
        return None
    return first.strip() or None


def _files(directory: Path, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Path]]:
    """Yield the regular files below a directory, following links and skipping hidden files."""
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        name, path = f"{prefix}{entry.name}", Path(entry.path)
        if entry.name.startswith("."):
            continue
        if entry.is_dir() and depth < _MOST_DEEP:
            yield from _files(path, f"{name}/", depth + 1)
        elif entry.is_file() and not name.endswith(_DESCRIBES):
            yield name, path


def _state(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_size, found.st_mtime_ns


def _digest(file: Path) -> str:
    descriptor, _ = open_regular(file)
    with os.fdopen(descriptor, "rb") as opened:
        return f"sha256:{hashlib.file_digest(opened, 'sha256').hexdigest()}"


_Entries = dict[str, tuple[int, int, str]]
"""Size, modification time and digest, by path."""


def _path() -> Path:
    return speclaunch_home() / "state" / "file-hashes.json"


def _stored() -> _Entries:
    try:
        return convert((read_json(_path()) or {}).get("files", {}), _Entries)
    except ValidationError:
        return {}


def _store(fresh: _Entries) -> None:
    """Add digests to the cache. A failed write is ignored: the files are read again next time."""
    with contextlib.suppress(OSError), locked(_path().with_suffix(".lock")):
        entries = {**_stored(), **fresh}
        latest = dict(list(entries.items())[-_ENTRIES:])
        write_json(_path(), {"version": 1, "files": latest})
