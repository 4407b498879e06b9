"""Long work stored as it is done, in one folder and document each, for resuming it after an
interruption.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from speclaunch.core import InputError, Problem, read_json, write_json


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
