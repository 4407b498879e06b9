"""Errors with place, cause and remedy, and the exit codes that scripts rely on."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path

from msgspec import Struct

COMMAND_LINE = "command line"
"""`Place.path` of a value that comes from an override instead of a file."""

command_line: tuple[str, ...] | None = None
"""The args of this process; None if speclaunch is used as a library."""


class ExitCode(IntEnum):
    """Exit codes of all commands, on which scripts may rely."""

    CLEAN = 0
    FAILED = 1
    """Findings with error severity, or a failed launch."""
    USAGE = 2
    """A usage error, or input that cannot be read."""
    NOTHING = 3
    """Nothing to check."""
    INTERNAL = 4
    INTERRUPTED = 130


def from_here(path: Path) -> str:
    """Return a path as the user would type it: relative if it is below the working directory."""
    try:
        here = Path.cwd()
    except OSError:  # the working directory was removed
        return str(path)
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


class Place(Struct, frozen=True):
    """The position of a value in a file or on the command line.

    - `line` and `column` count from 1. `length` is the number of characters to underline.
    - `text` is the override itself if `path` is `COMMAND_LINE`. Otherwise it is None, and the line
      is read from the file when it is shown.
    - `hidden`: the value is a secret, and the line is shown only up to it.
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
        from speclaunch.core.safe_text import single_line  # noqa: PLC0415  --version does not need it

        return f"{single_line(self.path)}:{self.line}:{self.column}"

    @property
    def position(self) -> tuple[str, int, int]:
        return self.path, self.line, self.column


class Problem(Struct, frozen=True):
    """An error in the input: message, place and remedy."""

    message: str
    place: Place | None = None
    help: str | None = None

    @property
    def position(self) -> tuple[str, int, int]:
        """A sort key. Problems without a place come first."""
        return ("", 1, 1) if self.place is None else self.place.position


class SpeclaunchError(Exception):
    """An error that is reported to the user without a traceback."""

    exit_code = ExitCode.FAILED

    def __init__(
        self,
        problems: str | Problem | Iterable[Problem],
        place: Place | None = None,
        help: str | None = None,  # noqa: A002
    ) -> None:
        """Create the error from problems, or from one message with its place and help."""
        if isinstance(problems, str):
            problems = Problem(problems, place, help)
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("; ".join(problem.message for problem in self.problems))


class InputError(SpeclaunchError):
    """An error in the recipe, an override or a file (exit 2), with all problems found."""

    exit_code = ExitCode.USAGE


class LaunchError(SpeclaunchError):
    """A launch error (exit 1): the engine did not start, failed, or does not serve as requested."""

    def __init__(self, message: str, *, help: str | None = None, log: Path | None = None) -> None:  # noqa: A002
        super().__init__(message, help=help)
        self.log = log
