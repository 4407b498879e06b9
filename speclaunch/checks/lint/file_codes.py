"""Finding codes: those that lint reports without a rule, and those that an option selects."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from msgspec import Struct

from speclaunch.checks.rules.interface import Finding, Fix, Severity, page
from speclaunch.core import COMMAND_LINE, InputError, Place, Problem


class FileCode(Struct, frozen=True):
    """Code of a finding that lint reports without a rule, with name, severity and page."""

    code: str
    name: str
    severity: Severity

    @property
    def summary(self) -> str:
        """One-line summary from its page."""
        return page(self.code).summary

    def finding(self, problem: Problem, path: str, engine: str, why: str = "") -> Finding:
        """Return the finding for a problem; without a place it is about the complete file."""
        fix = Fix(problem.help) if problem.help else None
        place = problem.place or Place(path)
        return Finding(
            self.code, self.name, self.severity, problem.message, why, fix, place, engine
        )


UNREADABLE = FileCode("SPL000", "unreadable-file", Severity.ERROR)
REFUSES = FileCode("SPL090", "engine-refuses", Severity.ERROR)
UNUSED = FileCode("SPL091", "unused-ignore", Severity.WARNING)
INVALID = FileCode("SPL092", "invalid-ignore", Severity.WARNING)
NOT_UNDERSTOOD = FileCode("SPL093", "not-understood", Severity.WARNING)
PLACEHOLDER = FileCode("SPL016", "placeholder-in-script", Severity.ERROR)
FILE_CODES = (UNREADABLE, PLACEHOLDER, REFUSES, UNUSED, INVALID, NOT_UNDERSTOOD)


@cache
def known_codes() -> tuple[str, ...]:
    """Return the codes of all rules, then those of FILE_CODES."""
    from speclaunch.checks.rules.registry import all_rules  # noqa: PLC0415  few callers need the rules

    return (*(rule.code for rule in all_rules()), *(code.code for code in FILE_CODES))


def codes(option: str, values: Sequence[str] | None) -> tuple[str, ...]:
    """Return the codes or code prefixes of an option.

    Raises InputError for an unknown code.
    """
    found = [code.strip().upper() for text in values or () for code in text.split(",")]
    for code in found:
        require_known_code(code, Place(COMMAND_LINE, text=f"{option} {','.join(values or ())}"))
    return tuple(found)


def require_known_code(code: str, place: Place) -> None:
    """Raise InputError at `place` unless `code` is a code or a prefix of one."""
    if code and any(known.startswith(code) for known in known_codes()):
        return
    from speclaunch.engine import suggest  # noqa: PLC0415  only for an unknown code

    near = suggest(code, {known[: len(code)] for known in known_codes()})
    help_ = near or "`speclaunch rules` lists them"
    raise InputError(f"unknown rule code {code!r}", place, help_)
