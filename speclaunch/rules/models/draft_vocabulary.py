"""The draft was made for another vocabulary than the target's.

## What it does
Compares `vocab_size` of an EAGLE or EAGLE-3 draft with the target's.

## Why it matters
The draft embeds the target's token ids with the target's own embedding, and its proposals are read
as the target's ids (an EAGLE-3 draft maps its reduced vocabulary to them with `d2t`). A draft of
another vocabulary means other words by the same ids: nearly all of its tokens are rejected; with
tensor parallelism its embedding is cut at other places than the target's and reads beyond the end.

## Example
```yaml
args:  # 151936 tokens, and a draft that was made for 116394
  model_path: Qwen/Qwen3-8B
  speculative_algorithm: EAGLE3
  speculative_draft_model_path: AvitoTech/avibe-eagle
```

## Use instead
The draft that was trained for this very target.

## Sources
- SGLang 0.5.23 models/llama_eagle3.py:350 (`d2t`), speculative/eagle_worker_v2.py:363 (`set_embed`)
- SGLang issues 16290, 24051
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.models.common import pair


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where both sizes are known and differ."""
    both = pair(plan)
    if both is None:
        return
    target, draft = both
    if target.vocab_size is None or draft.vocab_size in (None, target.vocab_size):
        return
    yield Verdict(
        f"the target has {target.vocab_size} tokens, the draft was made for {draft.vocab_size}",
        at=("speculative_draft_model_path", "model_path"),
        why="the draft embeds and proposes the target's token ids; ids of another vocabulary are "
        "other words, and hardly any proposal is accepted",
        fix=Fix("name a draft that was made for this target"),
    )


RULE = rule(
    "SPL410",
    "draft-vocabulary",
    Severity.WARNING,
    check,
    algorithms=("EAGLE", "EAGLE3"),
    sources=("sglang 0.5.23 speculative/eagle_worker_v2.py:363", "sglang issue #16290"),
    doc=__doc__,
)
