"""A draft tree on an MLA backend that takes chains.

## What it does
Finds `speculative_eagle_topk` above 1 where the draft's steps run on flashmla, or on flashinfer
with a draft that has multi-head latent attention (DeepSeek and its kin).

## Why it matters
The draft worker stops when it is built: `Currently FlashMLA only supports topk=1 for speculative
decoding`, `Currently Flashinfer MLA only supports topk=1 for speculative decoding`. By then the
weights are loaded. From 0.5.3 a draft of one step has no such backend, and starts.

## Example
```yaml
args:
  model_path: deepseek-ai/DeepSeek-R1
  attention_backend: flashinfer
  speculative_algorithm: NEXTN
  speculative_num_steps: 2
  speculative_eagle_topk: 4
  speculative_num_draft_tokens: 4
```

## Use instead
```yaml
args:
  model_path: deepseek-ai/DeepSeek-R1
  attention_backend: flashinfer
  speculative_algorithm: NEXTN
  speculative_num_steps: 3
  speculative_eagle_topk: 1
  speculative_num_draft_tokens: 4
```

## Sources
- SGLang 0.4.6 layers/attention/flashinfer_mla_backend.py:723 and flashmla_backend.py:471,
  0.5.23 …:1198 and …:610; 0.5.3 speculative/draft_utils.py:35
- sglang issue #4425
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.attention.draft import (
    DRAFTS,
    backends_of_draft,
    draft_checkpoint,
    is_mla,
)
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import number


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the backend of the draft's steps takes chains only."""
    topk = number(plan, "speculative_eagle_topk") or 1
    if topk <= 1:
        return
    if plan.in_versions(">=0.5.3") and number(plan, "speculative_num_steps") == 1:
        return
    steps, _ = backends_of_draft(plan)
    if steps == "flashmla" or (steps == "flashinfer" and is_mla(draft_checkpoint(plan))):
        yield Verdict(
            f"{steps} drafts only chains for MLA models: speculative_eagle_topk 1, not {topk}",
            at=(
                "speculative_eagle_topk",
                "speculative_draft_attention_backend",
                "attention_backend",
            ),
            why="the draft worker stops: ValueError: Currently only supports topk=1 for "
            "speculative decoding",
            fix=Fix(
                "set speculative_eagle_topk to 1; the draft tokens follow",
                set={"speculative_eagle_topk": 1, "speculative_num_draft_tokens": None},
            ),
        )


RULE = rule(
    "SPL305",
    "mla-tree",
    Severity.ERROR,
    check,
    algorithms=DRAFTS,
    sources=(
        "sglang 0.5.23 layers/attention/flashinfer_mla_backend.py:1198",
        "sglang 0.5.23 layers/attention/flashmla_backend.py:610",
        "sglang issue #4425",
    ),
    doc=__doc__,
)
