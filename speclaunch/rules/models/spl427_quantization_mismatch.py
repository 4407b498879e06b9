"""A `quantization` other than the one that the checkpoint was made with."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.plan.topics.quantization import NAME, method_of
from speclaunch.plan.topics.target import target_of
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the two contradict."""
    if plan.given(NAME) is None:
        return
    found = method_of(plan)
    if not found.contradicted:
        return
    yield Verdict(
        f"{target_of(plan).name} is quantised as {found.made}, not as {found.used}",
        at=(NAME,),
        why="the engine refuses: Quantization method specified in the model config "
        f"({found.made}) does not match the quantization method specified in the "
        f"`quantization` argument ({found.used})",
        fix=Fix("leave it out: the checkpoint says it", set={NAME: None}),
    )


RULE = rule(
    "SPL427",
    "quantization-mismatch",
    Severity.ERROR,
    check,
    says=("Quantization method specified in the model config ({}) does not match",),
)
