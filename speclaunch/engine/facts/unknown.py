"""What nobody can tell: a fact that was looked for, and the error of asking for a value without."""

from __future__ import annotations

from msgspec import Struct

UNKNOWN_HARDWARE = "the hardware is not known"


class UnknownValueError(LookupError):
    """A rule or a step asked for a value that nobody can tell: it has no verdict."""


class UnknownFact(Struct, frozen=True):
    """A fact that nobody could tell: what, why, and what would make it known."""

    what: str
    why: str
    help: str | None = None
