"""DFLASH needs a draft model.

## What it does
Finds DFLASH without `speculative_draft_model_path`.

## Why it matters
A DFLASH draft is a checkpoint of its own. The engine refuses to start without: `DFLASH speculative
decoding requires setting --speculative-draft-model-path.` (EAGLE falls back to the target's own
path; DFLASH does not.)

## Example
```yaml
args:
  model_path: Qwen/Qwen3-4B
  speculative_algorithm: DFLASH
```

## Use instead
```yaml
args:
  model_path: Qwen/Qwen3-4B
  speculative_algorithm: DFLASH
  speculative_draft_model_path: z-lab/Qwen3-4B-DFlash-b16
```

## Sources
- SGLang 0.5.11 server_args.py:3331, 0.5.23 arg_groups/speculative_hook.py:325
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where no draft is named."""
    if plan.value("speculative_draft_model_path") is None:
        yield Verdict(
            "DFLASH without speculative_draft_model_path",
            at=("speculative_algorithm",),
            why="the engine refuses: DFLASH speculative decoding requires setting "
            "--speculative-draft-model-path.",
            fix=Fix("name a DFLASH draft that was made for this target"),
        )


RULE = rule(
    "SPL602",
    "dflash-draft-path",
    Severity.ERROR,
    check,
    algorithms=("DFLASH",),
    sources=(
        "sglang 0.5.23 arg_groups/speculative_hook.py:325",
        "sglang 0.5.11 server_args.py:3331",
    ),
    doc=__doc__,
)
