"""A draft tree without `speculative_num_draft_tokens`."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.plan.topics.algorithms import EAGLE_HANDLER
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import number, tree_capacity


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where a tree has no number of tokens."""
    steps = number(plan, "speculative_num_steps")
    topk = number(plan, "speculative_eagle_topk")
    if steps is None or topk is None or topk <= 1:
        return
    if plan.value("speculative_num_draft_tokens") is not None:
        return
    tokens = min(tree_capacity(steps, topk), 16)
    yield Verdict(
        f"a draft tree ({steps} steps, topk {topk}) without speculative_num_draft_tokens",
        at=("speculative_eagle_topk", "speculative_num_steps"),
        why="the engine fills it in only for topk 1; here it stays empty, passes the argument "
        "checks, and raises a TypeError while the engine starts",
        fix=Fix(
            f"set speculative_num_draft_tokens, at most {tree_capacity(steps, topk)} here",
            set={"speculative_num_draft_tokens": tokens},
        ),
    )


RULE = rule("SPL104", "tree-without-tokens", Severity.ERROR, check, algorithms=EAGLE_HANDLER)
