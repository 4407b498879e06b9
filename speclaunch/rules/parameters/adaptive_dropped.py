"""`speculative_adaptive` is dropped: something else in the deployment does not support it.

## What it does
Finds adaptive speculation that the engine switches off at start, and says why: an algorithm other
than EAGLE and EAGLE3, a tree (`speculative_eagle_topk` above 1), DP attention, multi-layer EAGLE,
two-batch overlap, PD multiplexing; in 0.5.11 also the overlap schedule.

## Why it matters
The engine logs `speculative_adaptive disabled: … Falling back to static speculative params.` and
serves with a fixed number of steps. In 0.5.11 that is what happens unless
`disable_overlap_schedule` is set.

## Example
```yaml
args:
  speculative_algorithm: EAGLE3
  speculative_adaptive: true
  speculative_num_steps: 3
  speculative_eagle_topk: 4
  speculative_num_draft_tokens: 16
```

## Use instead
```yaml
args:
  speculative_algorithm: EAGLE3
  speculative_adaptive: true
  speculative_num_steps: 3
  speculative_eagle_topk: 1
  speculative_num_draft_tokens: 4
```

## Sources
- SGLang 0.5.11 speculative/adaptive_spec_params.py:19, 0.5.23
  speculative/adaptive_spec_params.py:58
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import adaptive_refusal


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where adaptive speculation was asked for and is dropped."""
    if not plan.given("speculative_adaptive") or plan.algorithm is None:  # none at all: SPL120
        return
    reason = adaptive_refusal(plan)
    if reason is not None:
        yield Verdict(
            f"speculative_adaptive is dropped: {reason}",
            at=("speculative_adaptive",),
            why="the engine logs that it falls back to static speculative params, and keeps the "
            "same number of steps throughout",
            fix=Fix(
                "take speculative_adaptive away, or what it does not go with",
                set={"speculative_adaptive": None, "speculative_adaptive_config": None},
            ),
        )


RULE = rule(
    "SPL108",
    "adaptive-dropped",
    Severity.WARNING,
    check,
    versions=">=0.5.11",  # same either way: the argument exists from 0.5.11
    sources=("sglang 0.5.23 speculative/adaptive_spec_params.py:58",),
    doc=__doc__,
)
