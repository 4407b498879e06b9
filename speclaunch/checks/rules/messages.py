"""Which rule foretells what the engine says as it refuses a start."""

from __future__ import annotations

import re
from functools import cache

from speclaunch.checks.rules.interface import Rule
from speclaunch.checks.rules.registry import all_rules
from speclaunch.engine import beginning


def rule_of(message: str) -> Rule | None:
    """The rule that finds before a start what the engine stops with; None for other messages.

    Of several the one whose words go furthest: `UNO requires FA3` is not any `UNO `.
    """
    whole, each = _patterns()
    if whole.match(message) is None:
        return None
    found = [(one.end(), rule) for pattern, rule in each if (one := pattern.match(message))]
    return max(found, key=lambda pair: pair[0])[1]


@cache
def _patterns() -> tuple[re.Pattern[str], tuple[tuple[re.Pattern[str], Rule], ...]]:
    """All beginnings in one, and each with its rule."""
    each = [(beginning(said), rule) for rule in all_rules() for said in rule.says]
    whole = re.compile("|".join(f"(?:{pattern})" for pattern, _ in each))
    return whole, tuple((re.compile(pattern), rule) for pattern, rule in each)
