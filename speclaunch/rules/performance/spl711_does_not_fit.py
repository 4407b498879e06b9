"""The weights or the KV cache do not fit into the memory."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.budget import Budget
from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_FRACTION = "mem_fraction_static"


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where it fails for certain."""
    if plan.facts.hardware is None:
        return
    found = plan.memory
    if found.phase is None:  # it fits, nobody knows, or ranks have no GPU (SPL506)
        return
    yield Verdict(
        f"the deployment does not fit into GPU memory: {found.why}",
        at=(_FRACTION, "model_path"),
        why=f"the start fails at '{found.phase.value}'"
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
    if choices.likely is None:  # an edge is no remedy: SPL712 would warn of it
        return Fix(
            f"{_FRACTION}={choices.said}; `speclaunch plan --fit` searches for settings that are "
            "likely to work, otherwise use more GPUs (tp_size) or a quantised model"
        )
    return Fix(f"{_FRACTION}={choices.said}", set={_FRACTION: choices.likely.fraction})


RULE = rule(
    "SPL711",
    "does-not-fit",
    Severity.WARNING,
    check,
    also={Severity.ERROR: "where the weights alone exceed the GPU"},
)
