"""The table of arguments on a terminal: given, effective, why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from speclaunch.plan.effective import Effective, Outcome
from speclaunch.report.plan import words
from speclaunch.report.plan.paper import Cell, Paper

_MARKS = {
    Outcome.GIVEN: (" ", ""),
    Outcome.DEFAULT: (" ", "dim"),
    Outcome.FILLED: ("+", "cyan"),
    Outcome.CHANGED: ("!", "bold yellow"),
    Outcome.UNKNOWN: ("?", "magenta"),
}
"""The mark in front of a row, and the colour of its effective value."""
_LOUD = ("!!", "bold white on red")
KEY = (
    "+ the engine works it out",
    "! the engine changes what was given",
    "!! it does so without a word",
    "? a fact is missing",
)
_NAME, _VALUES = 34, 34


def show_arguments(paper: Paper, rows: Sequence[Effective], *, everything: bool = False) -> None:
    """The rows by concern; without `everything` those that are given, changed or of weight."""
    shown = [row for row in rows if everything or row.notable]
    left = len(rows) - len(shown)
    paper.heading("Arguments", f"{left} more are at their defaults: --all" if left else "")
    silent = [row for row in shown if row.silent]
    if silent:
        names = ", ".join(row.spelling for row in silent)
        said = f" {words.many(len(silent), 'value')} changed without a word: {names} "
        paper.say(said, _LOUD[1], indent=2, mark="!! ")
    if paper.narrow:
        _stacked(paper, shown)
    else:
        _table(paper, shown)
    used = {mark(row)[0] for row in shown}
    legend = [text for text in KEY if text.split(" ")[0] in used]
    if legend:
        paper.line()
        paper.say("; ".join(legend), "dim", indent=2)


def mark(row: Effective) -> tuple[str, str]:
    """The mark of a row, and its style."""
    return _LOUD if row.silent else _MARKS[row.outcome]


def why(row: Effective) -> str:
    """Why the value is what it is: what the engine says, or where it was written."""
    if row.outcome is Outcome.GIVEN and row.place is not None:
        return words.place(row.place)
    if row.silent:
        return f"changed without a word: {row.why}"
    return row.why


def values(row: Effective) -> str:
    """`given \N{RIGHTWARDS ARROW} effective`; once where both are the same."""
    said = words.effective(row)
    if row.outcome in (Outcome.GIVEN, Outcome.DEFAULT):
        return said
    before = words.given(row)
    return f"{before}{' ' if before else ''}\N{RIGHTWARDS ARROW} {said}"


def _table(paper: Paper, rows: Iterable[Effective]) -> None:
    heads = ("argument", "given \N{RIGHTWARDS ARROW} effective", "why")
    cells = [[Cell(""), *(Cell(head, "dim") for head in heads)]]
    for concern, group in groupby(rows, key=lambda row: row.concern):
        cells += [[Cell("")], [Cell(concern.value, "bold cyan")]]
        cells += [_cells(row) for row in group]
    paper.table(cells, (2, _NAME, _VALUES))


def _cells(row: Effective) -> list[Cell]:
    sign, style = mark(row)
    return [
        Cell(sign, style),
        Cell(row.spelling, "dim" if row.outcome is Outcome.DEFAULT else ""),
        Cell(values(row), style),
        Cell(why(row), "dim" if _quiet(row) else "", "" if _quiet(row) else row.source),
    ]


def _stacked(paper: Paper, rows: Iterable[Effective]) -> None:
    for concern, group in groupby(rows, key=lambda row: row.concern):
        paper.line()
        paper.line(("  " + concern.value, "bold cyan"))
        for row in group:
            sign, style = mark(row)
            paper.say(f"{row.spelling}: {values(row)}", style, indent=2, mark=f"{sign:<2} ")
            if row.outcome is not Outcome.DEFAULT:
                paper.say(why(row), "dim" if _quiet(row) else "", indent=7)
            if row.source and not _quiet(row):
                paper.say(row.source, "dim", indent=7)


def _quiet(row: Effective) -> bool:
    return row.outcome in (Outcome.GIVEN, Outcome.DEFAULT)
