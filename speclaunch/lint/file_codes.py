"""Findings that no rule makes: about files, about their ignores, and those of an engine."""

from __future__ import annotations

from speclaunch.record import record
from speclaunch.rules.finding import Severity
from speclaunch.rules.pages import page


@record
class FileCode:
    """What lint says without a rule: code, name, severity and page as a rule has them."""

    code: str
    name: str
    severity: Severity

    @property
    def summary(self) -> str:
        """What it is about, in one line: from its page."""
        return page(self.code).summary


UNREADABLE = FileCode("SPL000", "unreadable-file", Severity.ERROR)
REFUSES = FileCode("SPL090", "engine-refuses", Severity.ERROR)
UNUSED = FileCode("SPL091", "unused-ignore", Severity.WARNING)
INVALID = FileCode("SPL092", "invalid-ignore", Severity.WARNING)
NOT_UNDERSTOOD = FileCode("SPL093", "not-understood", Severity.WARNING)
PLACEHOLDER = FileCode("SPL016", "placeholder-in-script", Severity.ERROR)
FILE_CODES = (UNREADABLE, PLACEHOLDER, REFUSES, UNUSED, INVALID, NOT_UNDERSTOOD)
