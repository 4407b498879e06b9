"""What composing gives: values as they are written, and where each came from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from speclaunch.recipe.source import KeyPath, Provenance
from speclaunch.record import record


@record
class Composed:
    """A recipe laid over its groups: interpolations as they are written."""

    raw: Any
    provenance: Provenance
    files: tuple[Path, ...]
    """Those that it was made of, in the order in which they were laid over each other."""


@record
class Composition:
    """A composed recipe: plain values, where each came from, and the files it was made of.

    What comes out of the environment is a FromEnvironment.
    """

    name: str
    path: Path
    values: dict[str, Any]
    provenance: Provenance
    files: tuple[Path, ...]


def exists(values: object, path: KeyPath) -> bool:
    """Whether something stands at a key."""
    for part in path:
        try:
            values = values[part]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return False
    return True
