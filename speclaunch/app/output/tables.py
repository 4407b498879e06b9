"""Terminal tables without column borders, and lines that start with a label."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Literal

from rich.table import Table
from rich.text import Text


def plain_table(
    columns: Iterable[str],
    *,
    right: Container[str] = (),
    overflow: Literal["ignore", "ellipsis", "fold"] = "ignore",
) -> Table:
    """Return a table without rows.

    `right`: columns to align right. `overflow`: treatment of cells that are too long; `fold` breaks
    them into several lines.
    """
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in right else "left"
        table.add_column(column, justify=justify, no_wrap=overflow != "fold", overflow=overflow)
    return table


_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float | None], width: int) -> str:
    """Return values over time as bars scaled from minimum to maximum; missing values leave gaps.

    More than `width` values are shown as means of neighboring values.
    """
    size = max(1, -(-len(values) // width))
    parts = [values[start : start + size] for start in range(0, len(values), size)]
    known = [[value for value in part if value is not None] for part in parts]
    means = [sum(some) / len(some) if some else None for some in known]
    present = [mean for mean in means if mean is not None]
    if not present:
        return ""
    low, span = min(present), max(present) - min(present)
    return "".join(
        " " if mean is None else _BARS[round((mean - low) / span * 7) if span else 3]
        for mean in means
    )


def label_line(
    label: str, text: str | Text, width: int, style: str = "dim", *, indent: int = 2
) -> Text:
    """Return a line with a label and its text; `width`: columns of the label."""
    return Text.assemble((f"{' ' * indent}{label:<{width}}", style), text)
