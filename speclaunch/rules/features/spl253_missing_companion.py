"""An argument without the other one that it needs."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.features.more_tables import MORE_NEEDS
from speclaunch.rules.features.tables import NEEDS, is_on
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict an argument that stands alone."""
    for row in (*NEEDS, *MORE_NEEDS):
        if row.value not in (None, plan.given(row.name)) or not is_on(plan, row.name):
            continue
        if not plan.in_versions(row.versions):
            continue
        if not row.present(plan):
            yield Verdict(
                f"{row.name} needs {row.needs}",
                at=(row.name,),
                why=f"the engine refuses: {row.said}",
                fix=Fix(f"set {row.needs}, or remove {row.name}", set={row.name: None}),
            )


RULE = rule("SPL253", "missing-companion", Severity.ERROR, check)
