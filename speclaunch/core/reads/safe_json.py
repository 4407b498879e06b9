"""Reads untrusted JSON within limits. Never waits; invalid input causes no traceback."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from speclaunch.core import reads
from speclaunch.core.reads.bounded import IrregularFileError, open_regular, read_regular

MAX_CONFIG_BYTES = 8 << 20
MAX_INDEX_BYTES = 64 << 20
MAX_TOKENIZER_BYTES = 100 << 20
MOST_BYTES = 1 << 50
"""Maximum size of a checkpoint, in bytes."""
_MOST = 1 << 32
"""Maximum number of a model's layers, heads or tokens."""
_MOST_VALUES = 6_000_000
"""Maximum number of values in a file. The largest published files (tokenizers) have less than half
as many."""


class UnreadableFileError(Exception):
    """Error: a file could not be read. The message states the reason."""


def read_start(path: Path, most: int) -> tuple[bytes, int]:
    """Return the first `most` bytes of a regular file, and its size. Raises UnreadableFileError.

    Refuses a pipe or a device, and does not wait for a pipe's writer.
    """
    try:
        handle, found = open_regular(path)
        with os.fdopen(handle, "rb") as stream:
            data = stream.read(most)
            reads.content(path, found, data if len(data) == found.st_size else None)
            return data, found.st_size
    except IrregularFileError:
        reads.mark_uncacheable()
        raise UnreadableFileError(f"{path.name} is not a regular file") from None
    except OSError as error:
        reads.failed(path, error)
        raise UnreadableFileError(f"{path.name}: {error.strerror or error}") from None


def read_object(path: Path, most: int = MAX_CONFIG_BYTES) -> dict[str, Any]:
    """Return the JSON object in a file of at most `most` bytes. Raises UnreadableFileError."""
    data, size_found = read_start(path, most + 1)
    if len(data) > most:
        raise UnreadableFileError(f"{path.name} has {size_found} bytes, more than {most}")
    return parse_object(data, path.name)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file that speclaunch wrote; None if it is missing or invalid.

    Does not record the read.
    """
    try:
        document = json.loads(read_regular(path, MAX_INDEX_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def parse_object(data: bytes, name: str) -> dict[str, Any]:
    """Parse a JSON object, called `name` in errors. Raises UnreadableFileError."""
    found = parse_document(data, name)
    if not isinstance(found, dict):
        raise UnreadableFileError(f"{name} does not contain an object")
    return found


def parse_document(data: bytes, name: str) -> Any:
    """Parse a JSON document, called `name` in errors. Raises UnreadableFileError."""
    if sum(map(data.count, (b",", b"{", b"["))) > _MOST_VALUES:  # 64 MB may use gigabytes
        raise UnreadableFileError(f"{name} has more than {_MOST_VALUES} values")
    try:
        return json.loads(data)
    except RecursionError:
        raise UnreadableFileError(f"{name} is not JSON: nested too deeply") from None
    except (ValueError, MemoryError) as error:  # ValueError: UnicodeDecodeError, a huge number too
        raise UnreadableFileError(f"{name} is not JSON: {str(error)[:120]}") from None


def is_shallow(document: object, most: int) -> bool:
    """True if a JSON document has at most `most` levels, so recursive functions can process it."""
    level = [document] if isinstance(document, dict | list) else []
    for _ in range(most):
        level = [
            item
            for container in level
            for item in (container.values() if isinstance(container, dict) else container)
            if isinstance(item, dict | list)
        ]
        if not level:
            return True
    return False


def is_file(path: Path) -> bool:
    """True if this user can access the path and it is a file; False for any error."""
    try:
        return reads.is_file(path)
    except (OSError, ValueError):  # no permission, a name too long, a NUL in it
        return False


def is_directory(path: Path) -> bool:
    """True if this user can access the path and it is a directory; False for any error."""
    try:
        return reads.is_dir(path)
    except (OSError, ValueError):
        return False


def text(value: object) -> str | None:
    """Return the value if it is a non-empty string, else None."""
    return value if isinstance(value, str) and value else None


def size(value: object, least: int = 1, most: int = _MOST) -> int | None:
    """Return the value if it is an integer from `least` to `most`, else None."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if least <= value <= most else None


def number(value: object) -> float | None:
    """Return the value if it is a number from 0 to 10^15, else None."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < LARGEST else None  # type: ignore[operator, arg-type]


LARGEST = 1e15


def texts(value: object) -> tuple[str, ...]:
    """Return the strings in a list; empty if the value is not a list."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return ()
    return tuple(item for item in value if isinstance(item, str))


def sizes(value: object) -> tuple[int, ...]:
    """Return a list of integers as a tuple; empty for any other value."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return ()
    found = [size(item, least=-1) for item in value]
    return () if None in found else tuple(item for item in found if item is not None)


def mapping(value: object) -> Mapping[str, Any]:
    """Return the value if it is an object, else an empty object."""
    return value if isinstance(value, dict) else {}
