"""The comparisons that are kept, as a table and for programs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from speclaunch.bench.find_kept import KeptBench
from speclaunch.report.bench import COLORS


def show_benches(console: Console, found: Iterable[KeptBench]) -> None:
    """A table, the newest last."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("comparison", "state", "rounds", "measured", "sides"):
        table.add_column(column, no_wrap=True, overflow="ignore")
    for one in found:
        table.add_row(
            Text(one.name, "bold"),
            Text(one.state, COLORS.get(one.state, "dim")),
            str(one.rounds),
            one.updated[:19].replace("T", " "),
            Text(" against ".join(one.sides)),
        )
    console.print(table)


def list_document(found: Iterable[KeptBench]) -> dict[str, Any]:
    """For programs."""
    return {
        "version": 1,
        "benches": [
            {
                "name": one.name,
                "state": one.state,
                "rounds": one.rounds,
                "measured": one.updated,
                "sides": list(one.sides),
                "path": str(one.path),
            }
            for one in found
        ],
    }
