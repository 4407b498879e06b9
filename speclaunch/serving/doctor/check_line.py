"""What the doctor says: one line a thing that was looked at."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct


class CheckState(StrEnum):
    """How a thing is."""

    OK = "ok"
    NOTE = "note"
    """Nothing wrong, and good to know."""
    UNKNOWN = "unknown"
    """It could not be told."""
    WARNING = "warning"
    """Likely to fail, or it costs something."""
    ERROR = "error"
    """It will stop the launch of the recipe."""


_ORDER = tuple(CheckState)


class CheckLine(Struct, frozen=True):
    """One thing that was looked at: how it is, what was found, why that matters, what to do."""

    check: str
    """What was looked at, in a word or two: stable, scripts may ask for it."""
    state: CheckState
    found: str
    why: str = ""
    fix: str | None = None
    """A command, or a sentence."""
    command: bool = False
    """Whether `fix` is a command that can be pasted into a shell as it is."""


class CheckSection(Struct, frozen=True):
    """The lines about one part of the machine."""

    title: str
    lines: tuple[CheckLine, ...]


def worst(lines: Iterable[CheckLine]) -> CheckState:
    """The worst state of all lines; ok when there is none."""
    return max((line.state for line in lines), key=_ORDER.index, default=CheckState.OK)


def count(lines: Iterable[CheckLine], state: CheckState) -> int:
    """How many lines are in a state."""
    return sum(line.state is state for line in lines)
