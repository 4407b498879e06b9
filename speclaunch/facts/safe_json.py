"""Reads JSON of strangers: bounded, and never with a traceback."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MAX_CONFIG_BYTES = 8 << 20
MAX_INDEX_BYTES = 64 << 20
MAX_TOKENIZER_BYTES = 128 << 20
_MOST = 1 << 50
"""No size, length or count of a model is larger."""


class UnreadableError(Exception):
    """Why a file could not be read, for a person."""


def read_object(path: Path, most: int = MAX_CONFIG_BYTES) -> dict[str, Any]:
    """The JSON object in a file. Raises UnreadableError."""
    try:
        if not path.is_file():
            raise UnreadableError(f"{path.name} is no file")
        size = path.stat().st_size
        if size > most:
            raise UnreadableError(f"{path.name} has {size} bytes, over {most}")
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise UnreadableError(f"{path.name}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:  # also UnicodeDecodeError
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)[:120]
        raise UnreadableError(f"{path.name} is not JSON: {reason}") from None
    if not isinstance(found, dict):
        raise UnreadableError(f"{path.name} holds no object")
    return found


def text(value: object) -> str | None:
    """A string that is not empty."""
    return value if isinstance(value, str) and value else None


def size(value: object, least: int = 1) -> int | None:
    """A whole number of at least `least`, within what models have."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if least <= value <= _MOST else None


def texts(value: object) -> tuple[str, ...]:
    """The strings of a list."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return ()
    return tuple(item for item in value if isinstance(item, str))


def sizes(value: object) -> tuple[int, ...]:
    """The whole numbers of a list; empty when one is something else."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return ()
    found = [size(item, least=-1) for item in value]
    return () if None in found else tuple(item for item in found if item is not None)


def mapping(value: object) -> Mapping[str, Any]:
    """An object, or an empty one."""
    return value if isinstance(value, dict) else {}
