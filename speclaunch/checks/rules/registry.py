"""All rules and advisories, and selections of them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module

from speclaunch.checks.rules.interface import Rule
from speclaunch.checks.rules.table import RULES


@cache
def all_rules() -> tuple[Rule, ...]:
    """Return the rules of the table and the advisories, each in the order of their codes."""
    from speclaunch.checks.advisory import advisory_rules  # noqa: PLC0415  a page needs none

    return (*RULES, *advisory_rules())


def import_checks() -> None:
    """Import the module of each rule; a lint imports only those that it needs."""
    for module in {rule.module for rule in RULES}:
        import_module(f"{__package__}.{module}")


def by_code(code: str) -> Rule | None:
    """Return the rule with a code or name, ignoring case."""
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
    """True if a code is selected; see `selected`."""
    return _longest(code, select or ("",)) > _longest(code, ignore)


def _longest(code: str, prefixes: tuple[str, ...]) -> int:
    """Return the length of the longest prefix of a code; -1 if there is none."""
    return max((len(prefix) for prefix in prefixes if code.startswith(prefix)), default=-1)
