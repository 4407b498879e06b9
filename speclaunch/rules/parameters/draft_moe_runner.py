"""The draft's MoE layers cannot run on flashinfer_trtllm in these releases.

## What it does
Finds `speculative_moe_runner_backend: flashinfer_trtllm` in 0.5.7 to 0.5.11, with any algorithm
and with none.

## Why it matters
The engine asserts it while it reads its arguments, because that runner gave wrong results with
some drafts. Left out, it takes `auto` where the target runs on flashinfer_trtllm. From 0.5.12 it
is allowed.

## Example
```yaml
args:
  speculative_algorithm: EAGLE
  speculative_moe_runner_backend: flashinfer_trtllm
```

## Use instead
```yaml
args:
  speculative_algorithm: EAGLE
  speculative_moe_runner_backend: triton
```

## Sources
- SGLang 0.5.7 server_args.py:1980, 0.5.11 server_args.py:3306
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_NAME = "speculative_moe_runner_backend"


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where that runner is asked for."""
    if plan.given(_NAME) == "flashinfer_trtllm":
        yield Verdict(
            f"SGLang {plan.version} refuses flashinfer_trtllm for the draft",
            at=(_NAME,),
            why="the engine asserts that the speculative MoE runner backend is not "
            "flashinfer_trtllm, which gave wrong results with some drafts",
            fix=Fix("use triton, or leave it to the engine", set={_NAME: "triton"}),
        )


RULE = rule(
    "SPL119",
    "draft-moe-runner",
    Severity.ERROR,
    check,
    versions=">=0.5.7,<0.5.12",
    sources=("sglang 0.5.7 server_args.py:1980", "sglang 0.5.11 server_args.py:3306"),
    doc=__doc__,
)
