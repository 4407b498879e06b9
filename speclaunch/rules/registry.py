"""Every rule there is: the modules in this package that define a RULE."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module

import speclaunch.rules
from speclaunch.rules.interface import Rule


@lru_cache(maxsize=1)
def all_rules() -> tuple[Rule, ...]:
    """All rules in the order of their codes."""
    return tuple(sorted(_found(), key=lambda rule: rule.code))


def by_code(code: str) -> Rule | None:
    """The rule with a code or a name, in any case."""
    wanted = code.strip().lower()
    return next((r for r in all_rules() if wanted in (r.code.lower(), r.name)), None)


def selected(select: tuple[str, ...] = (), ignore: tuple[str, ...] = ()) -> tuple[Rule, ...]:
    """The rules whose code begins with one of `select` (all when empty) and none of `ignore`.

    The more exact of two prefixes wins, as in ruff: `--ignore SPL3 --select SPL302`.
    """
    return tuple(
        rule
        for rule in all_rules()
        if _longest(rule.code, select or ("",)) > _longest(rule.code, ignore)
    )


def _longest(code: str, prefixes: tuple[str, ...]) -> int:
    """The length of the longest prefix of a code; -1 when there is none."""
    return max((len(prefix) for prefix in prefixes if code.startswith(prefix)), default=-1)


def _found() -> Iterator[Rule]:
    for family in pkgutil.iter_modules(speclaunch.rules.__path__):
        if not family.ispkg:
            continue
        package = import_module(f"speclaunch.rules.{family.name}")
        for module in pkgutil.iter_modules(package.__path__):
            found = import_module(f"{package.__name__}.{module.name}")
            rule = getattr(found, "RULE", None)
            if isinstance(rule, Rule):
                yield rule
