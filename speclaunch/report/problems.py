"""Problems as a compiler shows them: what, where with the line and a caret, what to do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path

from speclaunch.engine.secrets import masked
from speclaunch.errors import COMMAND_LINE, Place, Problem
from speclaunch.report.styled import Printer, Styled

_LONGEST_LINE = 160
_MOST_KEPT_BYTES = 1 << 20


def show_problems(console: Printer, problems: Iterable[Problem], severity: str = "error") -> None:
    """Print each problem; the text of a file is never taken for markup."""
    for problem in problems:
        console.print(render(problem, severity))


def render(problem: Problem, severity: str = "error") -> Styled:
    """One problem as text."""
    color = "bold red" if severity == "error" else "bold yellow"
    text = Styled(severity, color).append(f": {problem.message}", "bold")
    if problem.place is not None:
        text.append("\n")
        text.extend(located(problem.place))
    if problem.help:
        text.append("\n  help", "bold cyan")
        text.append(f": {problem.help}")
    return text


def located(place: Place, *, brief: bool = False) -> Styled:
    """A place, and (unless `brief`) its line with a caret below what is meant."""
    text = Styled("  --> ", "bold blue").append(masked(str(place)))
    line = None if brief else _line(place)
    if line is None or len(line) > _LONGEST_LINE:
        return text
    number = str(place.line)
    margin = " " * len(number)
    shown = line.replace("\t", " ")
    length = len("***") if place.hidden else min(place.length, max(1, len(shown)))
    under = " " * (place.column - 1) + "^" * length
    text.append(f"\n{margin} |\n{number} | ", "bold blue")
    text.append(shown)
    text.append(f"\n{margin} | ", "bold blue")
    text.append(under, "bold red")
    return text


def _line(place: Place) -> str | None:
    if place.path == COMMAND_LINE or place.line < 1:
        return None
    with contextlib.suppress(OSError, ValueError):
        found = Path(place.path).stat()
        read = _kept_lines if found.st_size <= _MOST_KEPT_BYTES else _lines
        lines = read(place.path, (found.st_mtime_ns, found.st_ctime_ns, found.st_size))
        line = next(islice(lines, place.line - 1, None), None)
        if line is not None:
            shown = f"{line[: place.column - 1]}***" if place.hidden else line
            return masked(shown.rstrip("\n"))
    return None


def _lines(path: str, _stamp: tuple[int, ...]) -> Iterator[str]:
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        yield from file


@lru_cache(maxsize=16)
def _kept_lines(path: str, stamp: tuple[int, ...]) -> tuple[str, ...]:
    """Findings of one file, and of a group that many have, follow each other."""
    return tuple(_lines(path, stamp))
