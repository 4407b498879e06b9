"""Digests of a checkpoint's files. Each file is read once: its digest is stored with its size and
time of change.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct

from speclaunch.core import (
    LaunchError,
    UnreadableFileError,
    locked,
    read_json,
    read_start,
    speclaunch_home,
    write_json,
)

_MOST_FILES, _MOST_DEEP = 4096, 4
_ENTRIES = 20_000
"""Maximum number of stored digests; the oldest are dropped."""
_THREADS = 4
_DESCRIBES = (".md", ".gitattributes")
"""Suffixes of files that no engine reads."""


class HashedFile(Struct, frozen=True):
    """A file of a checkpoint; `name` is relative to its directory."""

    name: str
    size: int
    hash: str
    """`sha256:…`"""


def hash_files(
    path: Path, *, verify: bool = False, reading: Callable[[str, int], None] = lambda *_: None
) -> tuple[HashedFile, ...]:
    """Return the files of a checkpoint's directory (or the one file `path`), by name.

    `verify` reads all files again. `reading` is called with the name and size of each file that is
    read. Raises LaunchError for a file that cannot be read.
    """
    found = dict(_files(path)) if path.is_dir() else {path.name: path}
    stored = _stored()
    try:
        states = {name: _state(file) for name, file in found.items()}
        due = {
            name: file
            for name, file in found.items()
            if verify or stored.get(_key(file), ())[:2] != states[name]
        }
        for name in due:
            reading(name, states[name][0])
        with ThreadPoolExecutor(_THREADS) as pool:
            try:
                digests = dict(zip(due, pool.map(_digest, due.values()), strict=True))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    except OSError as error:
        raise LaunchError(f"cannot read {error.filename}: {error.strerror}") from error
    fresh = {
        _key(found[name]): (*states[name], digest)
        for name, digest in digests.items()
        if _state(found[name]) == states[name]  # else it changed meanwhile
    }
    if fresh:
        _store(fresh)
    return tuple(
        HashedFile(name, states[name][0], digests.get(name) or stored[_key(file)][2])
        for name, file in sorted(found.items())
    )


def revision_of_files(directory: Path) -> str | None:
    """Return the commit on the hub that a directory was downloaded from; None if unknown.

    A snapshot of the hub's cache has it as its name. `hf download --local-dir` writes it into
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
    """Yield the regular files below a directory, following links, without hidden ones."""
    count = 0
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        name = f"{prefix}{entry.name}"
        if entry.name.startswith(".") or entry.name.endswith(_DESCRIBES):
            continue
        if entry.is_dir():
            if depth < _MOST_DEEP:
                yield from _files(Path(entry.path), f"{name}/", depth + 1)
        elif entry.is_file():
            count += 1
            if count > _MOST_FILES:
                raise LaunchError(f"{directory} has more than {_MOST_FILES} files: no checkpoint")
            yield name, Path(entry.path)


def _state(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_size, found.st_mtime_ns


def _key(file: Path) -> str:
    return os.path.realpath(file)


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise OSError(0, "not a regular file", str(file))
        return f"sha256:{hashlib.file_digest(opened, 'sha256').hexdigest()}"


_Entry = tuple[int, int, str]
"""Size, time of change and digest."""


def _path() -> Path:
    return speclaunch_home() / "state" / "file-hashes.json"


def _stored() -> dict[str, _Entry]:
    files = (read_json(_path()) or {}).get("files")
    if not isinstance(files, Mapping):
        return {}
    return {
        key: (size, changed, digest)
        for key, value in files.items()
        if isinstance(value, list) and len(value) == 3
        for size, changed, digest in [value]
    }


def _store(fresh: Mapping[str, _Entry]) -> None:
    """Add digests. A disk that cannot be written is no error: files are read again."""
    with contextlib.suppress(OSError), locked(_path().with_suffix(".lock")):
        entries = {**_stored(), **fresh}
        kept = dict(list(entries.items())[-_ENTRIES:])
        write_json(_path(), {"version": 1, "files": kept})
