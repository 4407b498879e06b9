"""Two certificates compared, on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from speclaunch.bench.schema import DifferenceDocument
from speclaunch.report import bench_words as words

_COLORS = {"faster": "green", "slower": "red", "not shown": "yellow"}


def show_difference(console: Console, found: DifferenceDocument) -> None:
    """Each common cell with its verdict, then what differs beside."""
    console.print(Text(f"{found.after} against {found.before}", "bold"))
    table = Table(box=None, pad_edge=False, header_style="dim")
    for number, column in enumerate(words.DIFFERENCE_COLUMNS):
        last = len(words.DIFFERENCE_COLUMNS) - 1
        table.add_column(column, justify="left" if number in (0, last) else "right", no_wrap=True)
    for cell in found.cells:
        table.add_row(
            Text(words.per_cell(cell)),
            words.ratio(cell.before.ratio),
            words.ratio(cell.after.ratio),
            words.ratio(cell.speed_up.ratio),
            words.span(cell.speed_up),
            f"{words.ratio(cell.throughput.ratio)} ({words.span(cell.throughput)})",
            Text(cell.verdict, _COLORS[cell.verdict]),
        )
    console.print(table)
    for line in (*words.alone(found), *found.notes):
        console.print(line, style="yellow", markup=False, highlight=False)
    for one in found.arguments:
        console.print(f"arguments of the {one.side}:", markup=False, highlight=False)
        for line in one.lines:
            color = "green" if line.startswith("+") else "red"
            console.print(Text(f"  {line}", color))
    console.print(words.difference_means(found), style="dim", markup=False, highlight=False)
