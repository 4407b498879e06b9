"""Names of stored comparisons. Light imports: shell completion waits for them."""

from __future__ import annotations

from pathlib import Path

from speclaunch.core import speclaunch_home

FILE = "bench.json"
LAST = "last"
"""Name of the newest finished comparison."""


def directory() -> Path:
    """Return the directory of stored comparisons."""
    return speclaunch_home() / "benches"


def stored_files() -> list[Path]:
    """Return the files of stored comparisons, oldest first."""
    return sorted(directory().glob(f"*/{FILE}"))


def stored_names() -> list[str]:
    """Return the names of stored comparisons, oldest first."""
    return [path.parent.name for path in stored_files()]
