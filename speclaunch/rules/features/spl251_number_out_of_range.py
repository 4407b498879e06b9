"""A number that the engine refuses."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.features.more_tables import MORE_NUMBERS
from speclaunch.rules.features.tables import NUMBERS
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a number."""
    for row in (*NUMBERS, *MORE_NUMBERS):
        value = plan.given(row.name)
        if value is None or row.allowed(value):
            continue
        if plan.in_versions(row.versions) and row.on(plan):
            yield Verdict(
                f"{plan.spelling(row.name)} must be {row.wanted}, not {value}",
                at=(row.name,),
                why=f"the engine stops: {row.said}",
                fix=Fix("remove it: the default works", set={row.name: None}),
            )


RULE = rule("SPL251", "number-out-of-range", Severity.ERROR, check)
