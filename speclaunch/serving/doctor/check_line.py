"""Output of the doctor: one line per check."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct


class CheckState(StrEnum):
    """State of a checked item."""

    OK = "ok"
    NOTE = "note"
    """No problem, but useful to know."""
    UNKNOWN = "unknown"
    """No result."""
    WARNING = "warning"
    """Likely to fail, or costly."""
    ERROR = "error"
    """Prevents the recipe's launch."""


_ORDER = tuple(CheckState)


class CheckLine(Struct, frozen=True):
    """Result of a check: state, finding, consequence, remedy."""

    check: str
    """Name of the check, one or two words long. Scripts can rely on it."""
    state: CheckState
    found: str
    why: str = ""
    fix: str | None = None
    """Command or sentence."""
    command: bool = False
    """True if `fix` is a command that can be pasted into a shell unchanged."""


class CheckSection(Struct, frozen=True):
    """Check lines about one aspect of the machine."""

    title: str
    lines: tuple[CheckLine, ...]


def worst(lines: Iterable[CheckLine]) -> CheckState:
    """Return the worst state of all lines; ok if there are none."""
    return max((line.state for line in lines), key=_ORDER.index, default=CheckState.OK)


def count(lines: Iterable[CheckLine], state: CheckState) -> int:
    """Return the number of lines in a state."""
    return sum(line.state is state for line in lines)
