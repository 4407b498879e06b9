"""What can go wrong, said with place, cause and remedy; and the exit codes that scripts rely on."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path

from msgspec import Struct

COMMAND_LINE = "command line"
"""`Place.path` of a value that was given as an override and not in a file."""

command_line: tuple[str, ...] | None = None
"""The arguments of this process; None where speclaunch is used as a library."""


class ExitCode(IntEnum):
    """Exit codes of every verb (the contract of the command line)."""

    CLEAN = 0
    FAILED = 1
    """Findings of error severity, or a launch that failed."""
    USAGE = 2
    """Usage, or input that cannot be read."""
    NOTHING = 3
    """Nothing to check."""
    INTERNAL = 4
    INTERRUPTED = 130


def from_here(path: Path) -> str:
    """A path as it would be typed: relative to the working directory, where it is below it."""
    try:
        here = Path.cwd()
    except OSError:  # it was removed
        return str(path)
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


class Place(Struct, frozen=True):
    """Where a value was written.

    `line` and `column` count from 1. `length` is the number of characters to underline. `text`
    is the override itself when `path` is `COMMAND_LINE`, otherwise None (the line is read from
    the file when it is shown). `hidden`: what stands there is a secret, and the line is shown only
    up to it.
    """

    path: str
    line: int = 1
    column: int = 1
    length: int = 1
    text: str | None = None
    hidden: bool = False

    def __str__(self) -> str:
        if self.path == COMMAND_LINE:
            return f"{COMMAND_LINE}: {self.text}"
        from speclaunch.core.escaping import one_line_name  # noqa: PLC0415  --version needs none

        return f"{one_line_name(self.path)}:{self.line}:{self.column}"

    @property
    def position(self) -> tuple[str, int, int]:
        """What places are ordered and compared by: path, line, column."""
        return self.path, self.line, self.column


class Problem(Struct, frozen=True):
    """One thing wrong with the input: what, where, and what to do about it."""

    message: str
    place: Place | None = None
    help: str | None = None

    @property
    def position(self) -> tuple[str, int, int]:
        """Of its place; what has none comes first."""
        return ("", 1, 1) if self.place is None else self.place.position


class SpeclaunchError(Exception):
    """Anything that we report to the user without a traceback."""

    exit_code = ExitCode.FAILED

    def __init__(self, problems: Problem | Iterable[Problem]) -> None:
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("; ".join(problem.message for problem in self.problems))


class InputError(SpeclaunchError):
    """The recipe, an override or a file is wrong (exit 2). Carries every problem found."""

    exit_code = ExitCode.USAGE


class LaunchError(SpeclaunchError):
    """The engine could not be started, failed, or does not serve what was asked (exit 1)."""

    def __init__(self, message: str, *, help: str | None = None, log: Path | None = None) -> None:  # noqa: A002
        super().__init__(Problem(message, help=help))
        self.log = log
