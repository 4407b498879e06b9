"""All rules, advisories and other codes that lint reports, and the selection of rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module

from msgspec import Struct

from speclaunch.checks.rules.interface import Finding, Fix, Rule, Severity, page
from speclaunch.checks.rules.table import RULES
from speclaunch.core import COMMAND_LINE, InputError, Place, Problem


@cache
def all_rules() -> tuple[Rule, ...]:
    """Return the rules of the table, then the advisories, each group in code order."""
    from speclaunch.checks.advisory import advisory_rules  # noqa: PLC0415  a page needs none

    return (*RULES, *advisory_rules())


def import_checks() -> None:
    """Import the module of each rule."""
    for module in {rule.module for rule in RULES}:
        import_module(f"{__package__}.{module}")


def by_code(code: str) -> Rule | None:
    """Return the rule with the code or name `code`, ignoring case; None if none has it."""
    normalized = code.strip().lower()
    return _named(normalized, RULES) or _named(normalized, all_rules())


def _named(normalized: str, rules: Iterable[Rule]) -> Rule | None:
    return next((rule for rule in rules if normalized in (rule.code.lower(), rule.name)), None)


def selected(select: tuple[str, ...] = (), ignore: tuple[str, ...] = ()) -> tuple[Rule, ...]:
    """Return the rules whose code begins with one of `select` (all if empty) and none of `ignore`.

    The longer of two prefixes wins, as in ruff: `--ignore SPL3 --select SPL302`.
    """
    return tuple(rule for rule in all_rules() if is_selected(rule.code, select, ignore))


def is_selected(code: str, select: tuple[str, ...] = (), ignore: tuple[str, ...] = ()) -> bool:
    """True if `selected` returns a rule with this code."""
    return _longest(code, select or ("",)) > _longest(code, ignore)


def _longest(code: str, prefixes: tuple[str, ...]) -> int:
    return max((len(prefix) for prefix in prefixes if code.startswith(prefix)), default=-1)


class FileCode(Struct, frozen=True):
    """Code, name and severity of a finding that lint reports without a rule."""

    code: str
    name: str
    severity: Severity

    @property
    def summary(self) -> str:
        return page(self.code).summary

    def finding(self, problem: Problem, path: str, engine: str, why: str = "") -> Finding:
        """Return a problem as a finding, at `path` if the problem has no place."""
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
    return (*(rule.code for rule in all_rules()), *(code.code for code in FILE_CODES))


def codes(option: str, values: Sequence[str] | None) -> tuple[str, ...]:
    """Return the rule codes and prefixes of codes in an option's comma-separated values.

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
