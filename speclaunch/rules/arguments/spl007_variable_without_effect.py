"""An environment variable of the engine is set and nothing reads it."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.engine.renames import dead_variable
from speclaunch.plan.plan import Plan
from speclaunch.plan.topics import spec_v2
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_OWN_RULE = spec_v2.VARIABLE


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a variable that nothing reads."""
    for name in plan.request.env:
        if name == _OWN_RULE:
            continue
        dead = dead_variable(name, plan.request.version)
        declared = plan.catalogue.variables.get(name)
        if dead is None and (declared is None or declared.read):
            continue
        yield Verdict(
            f"{name} has no effect in SGLang {plan.request.version}",
            at=(name,),
            why=dead.afterwards
            if dead is not None
            else "the release declares it but does not read it",
            fix=Fix("remove it", env={name: None}, safe=True),
        )


RULE = rule("SPL007", "variable-without-effect", Severity.WARNING, check)
