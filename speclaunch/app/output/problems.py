"""Problems in compiler style: message, place with line and caret, remedy."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from speclaunch.app.output.console import Printer, Styled
from speclaunch.core import (
    COMMAND_LINE,
    Place,
    Problem,
    errors,
    masked,
    read_regular,
    reads,
    shipped,
)

_LONGEST_LINE = 160
_LONGEST_MASKED = 4096


def show_problems(console: Printer, problems: Iterable[Problem], severity: str = "error") -> None:
    """Print each problem; file text is never treated as markup."""
    for problem in problems:
        console.print(render(problem, severity))


def render(problem: Problem, severity: str = "error") -> Styled:
    """Return one problem as text."""
    color = "bold red" if severity == "error" else "bold yellow"
    text = Styled(severity, color).append(f": {problem.message}", "bold")
    if problem.place is not None:
        text.append("\n")
        text.extend(located(problem.place))
    if problem.help:
        text.append("\n  help", "bold cyan")
        text.append(f": {problem.help}")
    return text


def located(place: Place, *, brief: bool = False, others: Sequence[Place] = ()) -> Styled:
    """Return a place and (unless `brief`) its line with a caret below the marked text.

    `others` are underlined with hyphens: on the same line if possible, otherwise on separate lines.
    """
    line = None if brief else source_line(place)
    same_line = (
        [other for other in others if _shares_line(other, place)] if line is not None else []
    )
    text = _shown("  --> ", place, line, "^", same_line)
    for other in others:
        if other not in same_line:
            text.append("\n").extend(_shown("  and ", other, source_line(other), "-", ()))
    return text


def _shares_line(other: Place, place: Place) -> bool:
    hidden = other.hidden or place.hidden
    return (other.path, other.line) == (place.path, place.line) and not hidden


def _shown(
    lead: str, place: Place, line: str | None, mark: str, neighbors: Sequence[Place]
) -> Styled:
    text = Styled(lead, "bold blue").append(masked(str(place)))
    if line is None or len(line) > _LONGEST_LINE:
        return text
    number = str(place.line)
    margin = " " * len(number)
    shown = line.replace("\t", " ")
    length = len("***") if place.hidden else min(place.length, max(1, len(shown)))
    under = " " * (place.column - 1) + mark * length
    for other in neighbors:
        start, end = other.column - 1, min(other.column - 1 + other.length, len(shown))
        under = "".join(
            "-" if start <= at < end and mine == " " else mine
            for at, mine in enumerate(under.ljust(end))
        )
    text.append(f"\n{margin} |\n{number} | ", "bold blue")
    text.append(shown)
    text.append(f"\n{margin} | ", "bold blue")
    text.append(under, "bold red")
    return text


def source_line(place: Place) -> str | None:
    """Return the source line of a place, with secrets redacted; None if unavailable."""
    line = complete_line(place)
    if line is None or len(line) > _LONGEST_MASKED:
        return None
    return masked(f"{line[: place.column - 1]}***" if place.hidden else line)


def complete_line(place: Place) -> str | None:
    """Return the unredacted source line, which must not be shown; None if unavailable."""
    if place.path == COMMAND_LINE or place.line < 1 or not _may_quote(place.path):
        return None
    held = reads.buffer(place.path)
    if held is not None:
        lines = _split(held)
        return lines[place.line - 1] if place.line <= len(lines) else None
    with contextlib.suppress(OSError, ValueError):
        found = Path(place.path).stat()
        lines = _lines(place.path, (found.st_mtime_ns, found.st_ctime_ns, found.st_size))
        return lines[place.line - 1] if place.line <= len(lines) else None
    return None


@lru_cache(maxsize=4)
def _lines(path: str, _stamp: tuple[int, ...]) -> tuple[str, ...]:
    """Return the lines of a file, cached until `_stamp` changes."""
    return _split(read_regular(path))


def _split(data: bytes) -> tuple[str, ...]:
    text = data.decode("utf-8", "replace")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return tuple(lines if lines[-1] else lines[:-1])


def _may_quote(path: str) -> bool:
    """True if lines of a file may be shown.

    The file must be in the project of the working directory or of a path on the command line.
    Otherwise, a repository could display any file, such as `/etc/shadow`, by name or link.
    In library use, the result is always True.
    """
    args = errors.command_line
    if args is None:
        return True
    try:
        return _is_inside(os.path.abspath(path), _roots(os.getcwd(), args))
    except (OSError, ValueError):
        return False


def _is_inside(path: str, roots: Sequence[str]) -> bool:
    real = os.path.realpath(path)
    for root in roots:
        if _below(path, root):
            above = repository(os.path.dirname(path))
            base = above if above is not None and _below(above, root) else root
            if _below(real, os.path.realpath(base)):
                return True
    return False


@lru_cache(maxsize=4)
def _roots(here: str, args: Sequence[str]) -> tuple[str, ...]:
    found = [here, *map(str, shipped())]
    for arg in args:
        for name in (arg, arg.partition("=")[2]):
            if name and len(name) < os.pathconf("/", "PC_PATH_MAX") and os.path.lexists(name):
                path = os.path.abspath(name)
                found.append(path if os.path.isdir(path) else os.path.dirname(path))
    return tuple(dict.fromkeys(repository(name) or name for name in found))


@lru_cache(maxsize=4096)
def repository(folder: str) -> str | None:
    """Return the nearest directory with `.git`, from `folder` upward; None if there is none."""
    while True:
        if os.path.lexists(os.path.join(folder, ".git")):
            return folder
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def _below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)
