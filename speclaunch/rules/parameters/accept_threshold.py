"""An acceptance threshold is a probability.

## What it does
Finds `speculative_accept_threshold_single` and `speculative_accept_threshold_acc` below 0 or above
1.

## Why it matters
The engine takes any number. The CUDA kernel that verifies sampled tokens demands 0 to 1: the first
request that samples (temperature above 0) ends in a `RuntimeError`, and the server with it. Greedy
requests do not reach that kernel.

## Example
```yaml
args:
  speculative_algorithm: EAGLE
  speculative_accept_threshold_acc: 1.5
```

## Use instead
```yaml
args:
  speculative_algorithm: EAGLE
  speculative_accept_threshold_acc: 1.0
```

## Sources
- sgl-kernel csrc/speculative/speculative_sampling.cu (CHECK_GE on both thresholds)
- SGLang 0.5.3.post3 speculative/eagle_info.py:336, 0.5.23 speculative/eagle_utils.py:781
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for each threshold that is no probability."""
    if plan.algorithm is None:
        return
    for name in ("speculative_accept_threshold_single", "speculative_accept_threshold_acc"):
        value = plan.given(name)
        if value is not None and not 0 <= float(value) <= 1:
            yield Verdict(
                f"{name} {value} is not between 0 and 1",
                at=(name,),
                why="the kernel that verifies sampled tokens demands a probability: the first "
                "request with a temperature above 0 stops the server",
                fix=Fix("1.0 keeps the target's own distribution", set={name: 1.0}),
            )


RULE = rule(
    "SPL110",
    "accept-threshold",
    Severity.WARNING,
    check,
    sources=("sgl-kernel csrc/speculative/speculative_sampling.cu",),
    doc=__doc__,
)
