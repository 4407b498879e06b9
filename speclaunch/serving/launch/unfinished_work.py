"""Long work stored as it is done, in one folder and document each, for resuming it after an
interruption.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from msgspec import Struct, ValidationError, convert, to_builtins

from speclaunch.core import InputError, Problem, read_json, write_json

VERSION = 1
Progress = TypeVar("Progress", bound=Struct)


def digest(data: object) -> str:
    """Return a digest of plain data that determines the work."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def unfinished(files: Iterable[Path], key: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield folders and documents among `files` with that key and without a result."""
    for path in files:
        document = read_json(path)
        if document and document.get("key") == key and document.get("result") is None:
            yield path.parent, document


def new_folder(home: Path, name: str) -> Path:
    """Create a folder named by the time and `name`. Raises InputError."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in range(100):
        path = home / f"{stamp}-{name}{f'-{number}' if number else ''}"
        try:
            path.mkdir(parents=True, mode=0o700)
        except FileExistsError:
            continue
        except OSError as error:
            raise InputError(
                Problem(
                    f"cannot create {path}: {error.strerror}",
                    help="choose a directory that can be written: SPECLAUNCH_HOME",
                )
            ) from error
        return path
    raise InputError(Problem(f"cannot create a directory in {home}"))


def write(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document atomically. Raises InputError if that fails."""
    try:
        write_json(path, document)
    except OSError as error:
        raise InputError(Problem(f"cannot write {path}: {error.strerror}")) from error


class StoredWork(Struct, Generic[Progress]):
    """Work on disk. The same `key` continues it until it has a result."""

    path: Path
    key: str
    about: Mapping[str, Any]
    progress: Progress

    @classmethod
    def begin(
        cls,
        home: Path,
        file: str,
        name: str,
        key: str,
        about: Mapping[str, Any],
        progress: Progress,
        *,
        fresh: bool,
    ) -> Self:
        """Return the newest unfinished work below `home` of the same key, or new work.

        `file`: name of the document in each folder; those of another format are ignored.
        `progress`: that of new work. Raises InputError.
        """
        files = [] if fresh else sorted(home.glob(f"*/{file}"), reverse=True)
        for folder, document in unfinished(files, key):
            try:
                done = convert(document, type(progress), strict=False)
            except ValidationError:
                continue
            return cls(folder / file, key, about, done)
        begun = cls(new_folder(home, name) / file, key, about, progress)
        if fresh:  # a later run continues this work, not older work
            begun.write()
        return begun

    @property
    def directory(self) -> Path:
        """Folder of the document, for logs."""
        return self.path.parent

    def add(self, progress: Progress) -> None:
        """Store the progress so far. Raises InputError if writing fails."""
        self.progress = progress
        self.write()

    def write(self, result: Mapping[str, Any] | None = None) -> None:
        """Replace the document atomically. Raises InputError if writing fails."""
        document = {
            "version": VERSION,
            "key": self.key,
            "updated": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "about": dict(self.about),
            **to_builtins(self.progress),
            "result": result,
        }
        write(self.path, document)
