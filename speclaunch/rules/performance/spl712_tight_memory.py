"""The deployment fits into the memory only in the best case."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.budget import Fit
from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_FRACTION = "mem_fraction_static"


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict if the memory is enough only with every estimate at its least."""
    if plan.facts.hardware is None:
        return
    if plan.memory.fit is not Fit.TIGHT:
        return
    yield Verdict(
        f"the deployment is tight on GPU memory: {plan.memory.why}",
        at=(_FRACTION, "model_path"),
        why="the start, a capture of CUDA graphs or a long prompt may run out of memory",
        fix=_fix(plan),
    )


def _fix(plan: Plan) -> Fix:
    from speclaunch.plan.memory.margins import margins  # noqa: PLC0415

    choices = margins(plan)
    if choices is None or choices.likely is None:
        return Fix(
            f"no {_FRACTION} is likely to work; `speclaunch plan --fit` searches for settings that "
            "are, otherwise use more GPUs (tp_size) or a quantized model"
        )
    return Fix(f"{_FRACTION}={choices.said}", set={_FRACTION: choices.likely.fraction})


RULE = rule("SPL712", "tight-memory", Severity.WARNING, check)
