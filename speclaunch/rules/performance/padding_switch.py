"""Switching the padding of graphs off does not add graphs when speculating.

## What it does
Finds `disable_cuda_graph_padding` with speculation on an engine before 0.5.3.

## Why it matters
The switch is meant to capture every batch size, so that none needs padding. Up to 0.5.2 the list
of sizes for speculation is the same with and without it; batches of a size in between are then
decoded without a graph. From 0.5.3 every size is captured.

## Example
```yaml
engine: {version: 0.5.2}
args:
  speculative_algorithm: EAGLE
  disable_cuda_graph_padding: true
```

## Use instead
```yaml
engine: {version: 0.5.2}
args:
  speculative_algorithm: EAGLE
  cuda_graph_bs_decode: [1, 2, 3, 4, 5, 6, 7, 8]  # every size that runs
```

## Sources
- SGLang 0.5.2 model_executor/cuda_graph_runner.py:170, 0.5.3 server_args.py
- slime, Speculative decoding guide
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.performance.common import SPECULATIVE

_SWITCH = "disable_cuda_graph_padding"


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the switch is on and no list says the sizes."""
    if not plan.value(_SWITCH) or plan.is_given("cuda_graph_bs_decode"):
        return
    yield Verdict(
        "disable_cuda_graph_padding captures no further sizes when speculating",
        at=(_SWITCH,),
        why="before 0.5.3 the list for speculation ignores it; sizes that are not in the list are "
        "decoded without a graph",
        fix=Fix("list the sizes, and leave the padding on", set={_SWITCH: None}),
    )


RULE = rule(
    "SPL704",
    "padding-switch",
    Severity.WARNING,
    check,
    algorithms=SPECULATIVE,
    versions="<0.5.3",
    sources=("sglang 0.5.2 model_executor/cuda_graph_runner.py:170",),
    doc=__doc__,
)
