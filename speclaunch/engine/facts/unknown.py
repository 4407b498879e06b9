"""Unknown facts, and the error for using an unknown value."""

from __future__ import annotations

from msgspec import Struct

UNKNOWN_HARDWARE = "the hardware is unknown"


class UnknownValueError(LookupError):
    """Error: a rule or a resolution step needs an unknown value."""


class UnknownFact(Struct, frozen=True):
    """An unknown fact: its name, the reason, and the remedy."""

    what: str
    why: str
    help: str | None = None
