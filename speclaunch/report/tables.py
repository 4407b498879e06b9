"""Tables on a terminal: columns without lines between them, their heads dim."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Literal

from rich.table import Table


def plain_table(
    columns: Iterable[str],
    *,
    right: Container[str] = (),
    overflow: Literal["ignore", "ellipsis", "fold"] = "ignore",
) -> Table:
    """Return a table without rows. `right`: columns of numbers, set flush right. `overflow`: what
    happens to a cell without room; with `fold` it has several lines."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in right else "left"
        table.add_column(column, justify=justify, no_wrap=overflow != "fold", overflow=overflow)
    return table
