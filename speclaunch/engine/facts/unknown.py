"""Unknown facts, and the error for using an unknown value."""

from __future__ import annotations

from msgspec import Struct

UNKNOWN_HARDWARE = "the hardware is unknown"


class UnknownValueError(LookupError):
    """Error: a rule or a step used an unknown value and has no result."""


class UnknownFact(Struct, frozen=True):
    """An unknown fact: name, reason, and remedy."""

    what: str
    why: str
    help: str | None = None
