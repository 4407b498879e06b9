"""The target has too few layers for EAGLE3."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.models.common import pair


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where fewer than three different layers are captured."""
    both = pair(plan)
    if both is None:
        return
    target, draft = both
    layers = target.num_hidden_layers
    if layers is None or draft.aux_hidden_layers:
        return
    captured = {2, layers // 2, layers - 3} & set(range(layers))
    if len(captured) == len((2, layers // 2, layers - 3)):
        return
    fails = len(captured) > 1
    yield Verdict(
        f"EAGLE3 reads three layers of the target, of {layers} it finds {len(captured)}",
        at=("model_path", "speculative_algorithm"),
        why="the draft gets too few hidden states and the first prefill fails"
        if fails
        else "the draft skips the layer that mixes them and its proposals are noise",
        fix=Fix("use a target with at least seven layers"),
        severity=Severity.ERROR if fails else Severity.WARNING,
    )


RULE = rule(
    "SPL417",
    "eagle3-small-target",
    Severity.ERROR,
    check,
    algorithms=("EAGLE3",),
    also={Severity.WARNING: "where one layer is left"},
)
