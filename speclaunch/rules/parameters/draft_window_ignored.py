"""The draft window does nothing for this algorithm.

## What it does
Finds `speculative_draft_window_size` (0.5.11: `speculative_dflash_draft_window_size`) with an
algorithm that does not read it.

## Why it matters
It limits how much of the context a draft attends to: for DFLASH, from 0.5.12 also for the Llama
EAGLE-3 draft, from 0.5.21 also for EAGLE and built-in MTP. Elsewhere the engine keeps the whole
context; from 0.5.13 it logs that the argument has no effect.

## Example
```yaml
args:
  speculative_algorithm: STANDALONE
  speculative_draft_window_size: 4096
```

## Use instead
```yaml
args:
  speculative_algorithm: STANDALONE
```

## Sources
- SGLang 0.5.13.post1 arg_groups/speculative_hook.py:88, 0.5.23 arg_groups/speculative_hook.py:213
- SGLang 0.5.12.post1 models/llama_eagle3.py
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_NAME = "speculative_draft_window_size"


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where nothing reads the window."""
    if plan.given(_NAME) is None or plan.algorithm is None:  # no algorithm: SPL120
        return
    readers = ["DFLASH"]
    readers += ["EAGLE3"] if plan.in_versions(">=0.5.12") else []
    readers += ["EAGLE"] if plan.in_versions(">=0.5.21") else []
    if plan.algorithm not in readers:
        yield Verdict(
            f"{plan.spelling(_NAME)} has no effect with {plan.algorithm}",
            at=(_NAME,),
            why=f"SGLang {plan.version} reads it for {', '.join(readers)}; the draft attends to "
            "the whole context",
            fix=Fix("take it away", set={_NAME: None}, safe=True),
        )


RULE = rule(
    "SPL115",
    "draft-window-ignored",
    Severity.WARNING,
    check,
    sources=(
        "sglang 0.5.23 arg_groups/speculative_hook.py:213",
        "sglang 0.5.13.post1 arg_groups/speculative_hook.py:88",
    ),
    doc=__doc__,
)
