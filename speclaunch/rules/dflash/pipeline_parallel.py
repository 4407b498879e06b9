"""DFLASH does not work with pipeline parallelism.

## What it does
Finds DFLASH with a `pp_size` other than 1.

## Why it matters
The engine refuses it while it reads its arguments, in every role of disaggregation: `Currently
DFLASH speculative decoding only supports pp_size == 1.`

## Example
```yaml
args:
  speculative_algorithm: DFLASH
  speculative_draft_model_path: z-lab/Qwen3-4B-DFlash-b16
  pp_size: 2
```

## Use instead
```yaml
args:
  speculative_algorithm: DFLASH
  speculative_draft_model_path: z-lab/Qwen3-4B-DFlash-b16
  tp_size: 2
```

## Sources
- SGLang 0.5.11 server_args.py:3326, 0.5.23 arg_groups/speculative_hook.py:320
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where there are several stages."""
    stages = int(plan.value("pp_size") or 1)
    if stages != 1:
        yield Verdict(
            f"DFLASH does not support pipeline parallelism (pp_size {stages})",
            at=("pp_size", "speculative_algorithm"),
            why="the engine refuses: Currently DFLASH speculative decoding only supports pp_size "
            "== 1.",
            fix=Fix("spread the model with tp_size instead", set={"pp_size": None}),
        )


RULE = rule(
    "SPL603",
    "dflash-pipeline-parallel",
    Severity.ERROR,
    check,
    algorithms=("DFLASH",),
    sources=(
        "sglang 0.5.23 arg_groups/speculative_hook.py:320",
        "sglang 0.5.11 server_args.py:3326",
    ),
    doc=__doc__,
)
