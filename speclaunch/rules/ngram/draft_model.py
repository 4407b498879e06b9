"""NGRAM loads no draft model.

## What it does
Finds NGRAM with a `speculative_draft_model_path`.

## Why it matters
NGRAM drafts from the text of the requests before. It accepts the path and loads nothing from it;
who gave one most likely wanted EAGLE, EAGLE3 or STANDALONE.

## Example
```yaml
args:
  speculative_algorithm: NGRAM
  speculative_draft_model_path: Qwen/Qwen3-0.6B
```

## Use instead
```yaml
args:
  speculative_algorithm: STANDALONE
  speculative_draft_model_path: Qwen/Qwen3-0.6B
```

## Sources
- SGLang 0.5.3.post3 speculative/ngram_worker.py:23, 0.5.23 speculative/ngram_worker.py:148
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where a draft is named."""
    path = plan.given("speculative_draft_model_path")
    if path is not None:
        yield Verdict(
            f"NGRAM does not use the draft model {path}",
            at=("speculative_draft_model_path",),
            why="it drafts from earlier text; the engine accepts the path and loads nothing from "
            "it",
            fix=Fix(
                "take the path away, or choose the algorithm that the draft was made for",
                set={"speculative_draft_model_path": None},
            ),
        )


RULE = rule(
    "SPL505",
    "ngram-draft-model",
    Severity.WARNING,
    check,
    algorithms=("NGRAM",),
    sources=("sglang 0.5.23 speculative/ngram_worker.py:148",),
    doc=__doc__,
)
