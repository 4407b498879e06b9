"""The draft was made for a target of another width.

## What it does
Compares the target's hidden size with the one that an EAGLE or EAGLE-3 draft expects
(`target_hidden_size`, else its own `hidden_size`).

## Why it matters
The draft's first layer multiplies the target's hidden states with a weight of a fixed shape. With
another width the first prefill fails (`mat1 and mat2 shapes cannot be multiplied`), when both
models are loaded already. An 8B draft on a 70B target is the usual cause.

## Example
```yaml
args:  # the target has 8192, the draft expects 4096
  model_path: meta-llama/Llama-3.1-70B-Instruct
  speculative_algorithm: EAGLE
  speculative_draft_model_path: lmsys/sglang-EAGLE-LLaMA3-Instruct-8B
```

## Use instead
The draft that was trained for this very target.

## Sources
- SGLang 0.5.23 models/llama_eagle.py:91 (`fc`: hidden_size * 2), models/llama_eagle3.py:163
  (`fc`: target_hidden_size * number of hidden states)
- SGLang issue 3824 (an 8B draft for a 70B target)
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.models.architectures import EAGLE3_DRAFTS, EAGLE_HEADS
from speclaunch.rules.models.common import pair


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where both widths are known and differ."""
    both = pair(plan)
    if both is None or both[1].architecture not in (*EAGLE_HEADS, *EAGLE3_DRAFTS):
        return
    target, draft = both
    expected = draft.target_hidden_size if draft.is_eagle3 else None
    expected = expected or draft.hidden_size
    if expected is None or target.hidden_size in (None, expected):
        return
    yield Verdict(
        f"the target's hidden size is {target.hidden_size}, the draft expects {expected}",
        at=("speculative_draft_model_path", "model_path"),
        why="the draft's first layer cannot take the target's hidden states: mat1 and mat2 shapes "
        "cannot be multiplied",
        fix=Fix("name a draft that was made for this target"),
    )


RULE = rule(
    "SPL409",
    "draft-hidden-size",
    Severity.ERROR,
    check,
    algorithms=("EAGLE", "EAGLE3"),
    sources=(
        "sglang 0.5.23 models/llama_eagle3.py:163",
        "sglang 0.5.23 models/llama_eagle.py:91",
        "sglang issue #3824",
    ),
    doc=__doc__,
)
