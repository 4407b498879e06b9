"""Every rule there is: the table of rules, whose checks are imported when they are first called.

Of some two hundred modules a plan needs those whose engine versions and algorithms are its own.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

from speclaunch.record import record
from speclaunch.rules.interface import Rule, Severity, defined_in, every_plan
from speclaunch.rules.table import ROWS


@record
class _Deferred:
    """A check of a rule whose module is not imported before it is called."""

    module: str
    code: str
    part: Literal["check", "check_across", "compares"]

    def __call__(self, given: Any) -> Any:
        found: Any = getattr(_defined(self.module, self.code), self.part)(given)
        return found


@cache
def _defined(module: str, code: str) -> Rule:
    return next(rule for rule in defined_in(f"{__package__}.{module}") if rule.code == code)


def defined(rule: Rule) -> Rule:
    """A rule of the table as its own module defines it."""
    deferred = rule.check
    return _defined(deferred.module, deferred.code) if isinstance(deferred, _Deferred) else rule


@cache
def all_rules() -> tuple[Rule, ...]:
    """All rules in the order of their codes."""
    return tuple(
        Rule(
            code,
            name,
            Severity(severity),
            _Deferred(module, code, "check"),
            versions,
            frozenset(algorithms),
            _Deferred(module, code, "check_across") if across else None,
            {Severity(other): when for other, when in also},
            says,
            _Deferred(module, code, "compares") if across else every_plan,
        )
        for code, name, severity, module, versions, algorithms, across, also, says in ROWS
    )


def by_code(code: str) -> Rule | None:
    """The rule with a code or a name, in any case."""
    wanted = code.strip().lower()
    return next((rule for rule in all_rules() if wanted in (rule.code.lower(), rule.name)), None)


def selected(select: tuple[str, ...] = (), ignore: tuple[str, ...] = ()) -> tuple[Rule, ...]:
    """The rules whose code begins with one of `select` (all when empty) and none of `ignore`.

    The more exact of two prefixes wins, as in ruff: `--ignore SPL3 --select SPL302`.
    """
    return tuple(rule for rule in all_rules() if is_selected(rule.code, select, ignore))


def is_selected(code: str, select: tuple[str, ...] = (), ignore: tuple[str, ...] = ()) -> bool:
    """Whether a code is asked for; see `selected`."""
    return _longest(code, select or ("",)) > _longest(code, ignore)


def _longest(code: str, prefixes: tuple[str, ...]) -> int:
    """The length of the longest prefix of a code; -1 when there is none."""
    return max((len(prefix) for prefix in prefixes if code.startswith(prefix)), default=-1)
