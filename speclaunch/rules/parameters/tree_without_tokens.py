"""A draft tree without `speculative_num_draft_tokens`.

## What it does
Finds an EAGLE, EAGLE3 or STANDALONE deployment that drafts a tree (`speculative_eagle_topk` above
1) and does not say how many of its tokens are verified.

## Why it matters
With a `speculative_eagle_topk` of 1 the engine fills in steps + 1. With more it fills in nothing
and accepts the arguments; the model is loaded, and then it computes with the missing number: a
`TypeError` about `NoneType` after minutes.

## Example
```yaml
args:
  speculative_algorithm: EAGLE
  speculative_num_steps: 3
  speculative_eagle_topk: 4
```

## Use instead
```yaml
args:
  speculative_algorithm: EAGLE
  speculative_num_steps: 3
  speculative_eagle_topk: 4
  speculative_num_draft_tokens: 16
```

## Sources
- SGLang 0.5.23 speculative/eagle_utils.py:110, mem_cache/allocation_sizing.py:53
- SGLang 0.4.6.post5 model_executor/model_runner.py:873
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import EAGLE_HANDLER, number, tree_capacity


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
        why="the engine fills it in only for topk 1; here it stays empty, passes the check of the "
        "arguments, and is computed with once the model is loaded: a TypeError",
        fix=Fix(
            f"set speculative_num_draft_tokens, at most {tree_capacity(steps, topk)} here",
            set={"speculative_num_draft_tokens": tokens},
        ),
    )


RULE = rule(
    "SPL104",
    "tree-without-tokens",
    Severity.ERROR,
    check,
    algorithms=EAGLE_HANDLER,
    sources=(
        "sglang 0.5.23 speculative/eagle_utils.py:110",
        "sglang 0.4.6.post5 model_executor/model_runner.py:873",
    ),
    doc=__doc__,
)
