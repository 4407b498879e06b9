"""An old engine runs a draft whose context length nobody checked.

## What it does
Finds a separate draft on an engine before 0.5.1 where the draft's context length is not known.

## Why it matters
Before 0.5.1 the engine gives the draft the target's context length and, as delivered, only logs a
warning when the draft's own is shorter. Many published drafts have 2048 positions. Requests that
grow beyond it end in `CUDA error: an illegal memory access was encountered`, minutes or hours
after the start. slime's guide names this as the first thing to check with an external draft, and
0.5.1 as the remedy: it refuses such a pair.

## Example
```yaml
engine: {version: 0.4.10.post2}
args:
  model_path: Qwen/Qwen3-8B
  speculative_algorithm: EAGLE3
  speculative_draft_model_path: outputs/epoch_0
```

## Use instead
SGLang 0.5.1 or later; or name the directory of the draft with `--models`, so that its config can
be read.

## Sources
- slime, Speculative decoding guide; SGLang pull request 9388
- SGLang 0.4.10.post2 configs/model_config.py:162
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.models.common import context_of, context_overwritten, draft_path


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for a draft of unknown length that the engine does not check."""
    path = draft_path(plan)
    if path is None or context_of(plan.facts.draft, plan) is not None:
        return
    if not context_overwritten(plan):
        return
    yield Verdict(
        f"the context length of the draft {path} is not known, and this engine does not check it",
        at=("speculative_draft_model_path",),
        why="a draft that is shorter than the target ends in illegal memory accesses before 0.5.1, "
        "which refuses it (sglang pull request #9388)",
        fix=Fix("use SGLang 0.5.1 or later, or compare max_position_embeddings of both"),
    )


RULE = rule(
    "SPL422",
    "unchecked-draft-context",
    Severity.WARNING,
    check,
    algorithms=("EAGLE", "EAGLE3"),
    versions="<0.5.1",
    sources=("sglang pull request #9388", "sglang 0.4.10.post2 configs/model_config.py:162"),
    doc=__doc__,
)
