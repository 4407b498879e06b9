"""Resumable work: each task saves its progress to its own folder and document."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from msgspec import Struct, ValidationError, convert

from speclaunch.core import (
    InputError,
    SpeclaunchError,
    json_value,
    read_json,
    speclaunch_home,
    write_json,
)

VERSION = 1


class Progress(Struct, frozen=True):
    """Stored progress of resumable work."""

    @property
    def saved(self) -> str:
        """Saved progress as text, for example `12 answers`; empty if there is none."""
        raise NotImplementedError


Done = TypeVar("Done", bound=Progress)


def digest(data: object) -> str:
    """Return a digest of `data`, which identifies the work."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def unfinished(files: Iterable[Path], key: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the folder and content of each document in `files` with this key and no result."""
    for path in files:
        document = read_json(path)
        if document and document.get("key") == key and document.get("result") is None:
            yield path.parent, document


def new_folder(
    home: Path,
    name: str,
    refusal: type[SpeclaunchError] = InputError,
    remedy: str = "set SPECLAUNCH_HOME to a writable directory",
) -> Path:
    """Create and return a folder named after the time and `name`. Raises `refusal`."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in range(100):
        path = home / f"{stamp}-{name}{f'-{number}' if number else ''}"
        try:
            path.mkdir(parents=True, mode=0o700)
        except FileExistsError:
            continue
        except OSError as error:
            raise refusal(f"cannot create {path}: {error.strerror}", help=remedy) from error
        return path
    raise refusal(f"cannot create a directory in {home}", help=remedy)


def write(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document atomically. Raises InputError if that fails."""
    try:
        write_json(path, document)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error


def stored_work(kind: str) -> list[Path]:
    """Return the documents of one kind of stored work, oldest first."""
    return sorted((speclaunch_home() / f"{kind}s").glob(f"*/{kind}.json"))


class StoredWork(Struct, Generic[Done]):
    """Work on disk. A run with the same `key` continues the work until it has a result."""

    path: Path
    key: str
    about: Mapping[str, Any]
    progress: Done

    @classmethod
    def begin(
        cls,
        kind: str,
        name: str,
        key: str,
        about: Mapping[str, Any],
        progress: Done,
        *,
        fresh: bool,
    ) -> Self:
        """Return the newest unfinished work of this kind and key, or new work (always if `fresh`).

        Documents in other formats are ignored. `progress`: initial progress of new work. Raises
        InputError.
        """
        files = [] if fresh else reversed(stored_work(kind))
        for folder, document in unfinished(files, key):
            try:
                done = convert(document, type(progress), strict=False)
            except ValidationError:
                continue
            return cls(folder / f"{kind}.json", key, about, done)
        folder = new_folder(speclaunch_home() / f"{kind}s", name)
        begun = cls(folder / f"{kind}.json", key, about, progress)
        if fresh:  # a later run continues this work, not older work
            begun.write()
        return begun

    @property
    def directory(self) -> Path:
        """Folder of the document; logs are also stored there."""
        return self.path.parent

    @contextmanager
    def resuming(self, say: Callable[[str], None]) -> Iterator[None]:
        """Report the saved progress with `say` before the block, and again after Ctrl-C."""
        if self.progress.saved:
            saved = self.progress.saved
            say(f"resuming {self.directory.name} ({saved} saved; --fresh starts over)")
        try:
            yield
        except KeyboardInterrupt:
            say(
                f"interrupted: engines stopped, {self.progress.saved or 'nothing'} saved to "
                f"{self.directory}; repeat the command to resume"
            )
            raise

    def add(self, progress: Done) -> None:
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
            **json_value(self.progress),
            "result": result,
        }
        write(self.path, document)
