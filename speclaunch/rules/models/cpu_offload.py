"""Weights are offloaded to the CPU while a draft speculates.

## What it does
Finds `cpu_offload_gb` above 0 together with a draft model.

## Why it matters
The offloaded weights are copied to the GPU again for every forward pass, so also for the draft's
many small ones; the limit counts for the target and for the draft, each. Hybrid models (Qwen3-Next,
Qwen3.5, Qwen3.6) crash on the first request: parameters that two names share break
`torch.func.functional_call`. The memory that speculation takes is usually what made the offload
necessary.

## Example
```yaml
args:
  model_path: Qwen/Qwen3.5-27B
  speculative_algorithm: EAGLE3
  speculative_draft_model_path: path/to/draft
  cpu_offload_gb: 2
```

## Use instead
A smaller or a quantised target that fits with its draft, a shorter context, or no speculation.

## Sources
- SGLang 0.5.12.post1 utils/offloader.py:84; issues 23150, 20774
- noonghunna/club-3090 issue 171
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where something is offloaded."""
    size = plan.value("cpu_offload_gb")
    if not size:
        return
    yield Verdict(
        f"{size} GB of weights are offloaded to the CPU while {plan.algorithm} speculates",
        at=("cpu_offload_gb",),
        why="they are copied for every pass of target and draft; hybrid models crash on the first "
        "request (sglang issue #23150)",
        fix=Fix("do without the offload, or without speculation", set={"cpu_offload_gb": None}),
    )


RULE = rule(
    "SPL423",
    "cpu-offload",
    Severity.WARNING,
    check,
    algorithms=("EAGLE", "EAGLE3", "STANDALONE", "DFLASH", "DSPARK"),
    sources=("sglang issue #23150", "sglang 0.5.12.post1 utils/offloader.py:84"),
    doc=__doc__,
)
