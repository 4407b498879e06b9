"""The names of the comparisons that are kept: read by a shell's completion, which waits for it."""

from __future__ import annotations

from pathlib import Path

from speclaunch.core import speclaunch_home

FILE = "bench.json"
LAST = "last"
"""The newest comparison that was finished."""


def directory() -> Path:
    """Where comparisons are kept."""
    return speclaunch_home() / "benches"


def kept_files() -> list[Path]:
    """Their files, the oldest first."""
    return sorted(directory().glob(f"*/{FILE}"))


def kept_names() -> list[str]:
    """Their names, the oldest first."""
    return [path.parent.name for path in kept_files()]
