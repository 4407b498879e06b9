"""Multi-layer EAGLE with a tree, or with tokens that its chain does not have."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import number

_TOKENS = "speculative_num_draft_tokens"
_TOPK = "speculative_eagle_topk"


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the draft tokens are not one more than the steps."""
    if not plan.value("enable_multi_layer_eagle"):
        return
    tokens, steps = number(plan, _TOKENS), number(plan, "speculative_num_steps")
    if tokens is None or steps is None or tokens == steps + 1:
        return
    yield Verdict(
        f"multi-layer EAGLE drafts a chain of {steps} steps: {_TOKENS} {tokens} is not {steps + 1}",
        at=(_TOPK, _TOKENS, "enable_multi_layer_eagle"),
        why="the engine stops while it starts: multi-layer EAGLE requires "
        f"{_TOKENS} == speculative_num_steps + 1, got {tokens} and {steps}",
        fix=Fix(
            f"set {_TOPK} to 1, and {_TOKENS} to {steps + 1}",
            set={_TOPK: 1, _TOKENS: steps + 1},
        ),
    )


RULE = rule(
    "SPL426",
    "multi-layer-tree",
    Severity.ERROR,
    check,
    algorithms=("EAGLE", "EAGLE3"),
    versions=">=0.5.13",
    says=("multi-layer EAGLE requires speculative_num_draft_tokens",),
)
