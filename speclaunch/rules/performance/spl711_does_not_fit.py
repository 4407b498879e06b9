"""The weights or the KV cache do not fit into the memory."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.budget import Budget, Fit
from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_FRACTION = "mem_fraction_static"


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where it fails for certain."""
    if plan.facts.hardware is None:
        return
    from speclaunch.plan.memory.budget import budget  # noqa: PLC0415  all of plan/memory

    found = budget(plan)
    if found.fit is not Fit.FAILS:
        return
    phase = found.phase.value if found.phase is not None else "start"
    yield Verdict(
        f"the deployment does not fit into GPU memory: {found.why}",
        at=(_FRACTION, "model_path"),
        why=f"the start fails at '{phase}'"
        + (f"; the engine says: {found.message}" * bool(found.message)),
        fix=_fix(plan, found),
        severity=Severity.ERROR if found.impossible else None,
    )


def _fix(plan: Plan, found: Budget) -> Fix:
    if found.impossible:
        return Fix(
            "use more GPUs (a larger tp_size), larger ones, or a quantised model; `speclaunch "
            "plan --fit` shows what would fit"
        )
    from speclaunch.plan.memory.margins import margins  # noqa: PLC0415

    choices = margins(plan)
    if choices is None:
        return Fix(
            f"no {_FRACTION} helps; `speclaunch plan --fit` searches for settings that fit, "
            "otherwise use more GPUs (tp_size) or a quantised model"
        )
    return Fix(f"{_FRACTION}={choices.said}", set={_FRACTION: choices.best.fraction})


RULE = rule(
    "SPL711",
    "does-not-fit",
    Severity.WARNING,
    check,
    also={Severity.ERROR: "where the weights alone exceed the GPU"},
)
