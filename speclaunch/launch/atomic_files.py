"""Documents on disk: small files that are always whole, and values that have their types."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from speclaunch.reads.bounded import read_regular

_MAX_BYTES = 64 << 20
_LARGEST = 1 << 53
"""Whole numbers below it are the same as floats."""


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a JSON document, readable by this user only. Raises OSError; the old file is then
    as it was."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    data = json.dumps(document, indent=1, default=str).encode() + b"\n"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        temporary.replace(path)
    except BaseException:  # an interrupt, too
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def read_json(path: Path) -> dict[str, Any] | None:
    """The document of a file; None when there is none, or it is no JSON object."""
    try:
        document = json.loads(read_regular(path, _MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def write_private(path: Path, text: str) -> None:
    """Write a new file that this user alone may read, in the place of an old one."""
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(text)


def decode(kind: Any, value: object) -> Any:  # noqa: PLR0911 - a line a kind of type
    """Return a value of a JSON document as `kind`: the type of a record or of one of its fields.

    A field that may be None may be missing; keys that the record does not have are ignored. Raises
    ValueError where a value is of another type.
    """
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin is UnionType:
        (wanted,) = (one for one in args if one is not NoneType)
        return None if value is None else decode(wanted, value)
    if origin is tuple and isinstance(value, list):
        return tuple(decode(args[0], one) for one in value)
    if origin is Mapping and isinstance(value, dict):
        return {name: decode(args[1], one) for name, one in value.items()}
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, dict):
        types = _field_types(kind)
        return kind(**{name: decode(one, value.get(name)) for name, one in types.items()})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if kind is float and type(value) is int and abs(value) < _LARGEST:
        return float(value)
    if type(value) is not kind:
        raise ValueError(f"{value!r} is not of the type {kind}")
    return value


@cache
def _field_types(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
