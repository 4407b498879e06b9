"""Names of stored comparisons. Shell completion waits for this module, so it imports little."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speclaunch.core import mapping, number, speclaunch_home

FILE = "bench.json"
LAST = "last"
"""Name of the newest finished comparison."""


def directory() -> Path:
    """Return the directory of stored comparisons."""
    return speclaunch_home() / "benches"


def stored_files() -> list[Path]:
    """Return the files of stored comparisons, oldest first."""
    return sorted(directory().glob(f"*/{FILE}"))


def stored_length(result: Mapping[str, Any]) -> float | None:
    """Return the mean acceptance length in a result of `bench` or `prove`; None if unknown."""
    cells = result.get("cells", result.get("concurrencies"))
    lengths = [
        length
        for cell in map(mapping, cells if isinstance(cells, list) else ())
        if (length := number(mapping(cell.get("candidate", cell)).get("accept_length")))
    ]
    return round(sum(lengths) / len(lengths), 3) if lengths else None


def stored_names() -> list[str]:
    """Return the names of stored comparisons, oldest first."""
    return [path.parent.name for path in stored_files()]
