"""The codes that somebody names: of rules, and of what lint says itself."""

from __future__ import annotations

from collections.abc import Sequence

from speclaunch.engine.nearest import suggest
from speclaunch.errors import COMMAND_LINE, InputError, Place, Problem
from speclaunch.lint.file_codes import FILE_CODES
from speclaunch.rules.registry import all_rules


def codes(option: str, given: Sequence[str] | None) -> tuple[str, ...]:
    """The codes (or beginnings) that an option names. Raises InputError for an unknown one."""
    codes = [code.strip().upper() for text in given or () for code in text.split(",")]
    for code in codes:
        known_code(code, Place(COMMAND_LINE, text=f"{option} {','.join(given or ())}"))
    return tuple(codes)


def known_code(code: str, place: Place) -> None:
    """Raises InputError, at `place`, for what is neither a code nor the beginning of one."""
    known = [*(rule.code for rule in all_rules()), *(notice.code for notice in FILE_CODES)]
    if not code or not any(one.startswith(code) for one in known):
        help_ = (
            suggest(code, {one[: len(code)] for one in known}) or "`speclaunch rules` lists them"
        )
        raise InputError(Problem(f"unknown rule code {code!r}", place, help_))
