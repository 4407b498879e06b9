"""Find the rule that predicts an engine message."""

from __future__ import annotations

import re
from functools import cache

from speclaunch.checks.rules.interface import Rule
from speclaunch.checks.rules.registry import all_rules
from speclaunch.engine import beginning


def rule_of(message: str) -> Rule | None:
    """Return the rule that predicts the engine's refusal; None for other messages.

    The longest match wins: `UNO requires FA3` is more specific than `UNO `.
    """
    combined, each = _patterns()
    if combined.match(message) is None:
        return None
    found = [(match.end(), rule) for pattern, rule in each if (match := pattern.match(message))]
    return max(found, key=lambda pair: pair[0])[1]


@cache
def _patterns() -> tuple[re.Pattern[str], tuple[tuple[re.Pattern[str], Rule], ...]]:
    """Return all beginnings as one pattern, and each with its rule."""
    each = [(beginning(text), rule) for rule in all_rules() for text in rule.engine_messages]
    combined = re.compile("|".join(f"(?:{pattern})" for pattern, _ in each))
    return combined, tuple((re.compile(pattern), rule) for pattern, rule in each)
