"""Terminal tables without lines between columns, and lines that start with a label."""

from __future__ import annotations

from collections.abc import Container, Iterable
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

    `right`: columns of numbers, aligned right. `overflow`: treatment of a cell without room; with
    `fold` it has several lines.
    """
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in right else "left"
        table.add_column(column, justify=justify, no_wrap=overflow != "fold", overflow=overflow)
    return table


def label_line(
    label: str, text: str | Text, width: int, style: str = "dim", *, indent: int = 2
) -> Text:
    """Return a line with a label and its text; `width`: columns of the label."""
    return Text.assemble((f"{' ' * indent}{label:<{width}}", style), text)
