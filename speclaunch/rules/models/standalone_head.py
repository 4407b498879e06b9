"""STANDALONE is given a draft that cannot stand alone.

## What it does
Finds STANDALONE with a draft whose architecture is an EAGLE head or a multi-token-prediction layer.

## Why it matters
STANDALONE runs its draft as a language model of its own. An EAGLE head reads the target's hidden
states in every step, which the STANDALONE worker does not capture: it fails on the first prefill,
or drafts from what it finds.

## Example
```yaml
args:
  model_path: meta-llama/Llama-3.1-8B-Instruct
  speculative_algorithm: STANDALONE
  speculative_draft_model_path: lmsys/sglang-EAGLE-LLaMA3-Instruct-8B
```

## Use instead
```yaml
args:
  model_path: meta-llama/Llama-3.1-8B-Instruct
  speculative_algorithm: EAGLE
  speculative_draft_model_path: lmsys/sglang-EAGLE-LLaMA3-Instruct-8B
```

## Sources
- SGLang 0.5.2 speculative/standalone_worker.py, 0.5.23 speculative/standalone_worker_v2.py;
  models/llama_eagle.py:108 (`forward_batch.spec_info.hidden_states`)
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.models.architectures import is_draft_class
from speclaunch.rules.models.common import draft_of


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the draft's class is a head."""
    draft = draft_of(plan)
    if draft is None or draft.architecture is None or not is_draft_class(draft.architecture):
        return
    algorithm = "EAGLE3" if draft.is_eagle3 else "EAGLE"
    yield Verdict(
        f"STANDALONE is given {draft.architecture}, which works on the target's hidden states",
        at=("speculative_algorithm", "speculative_draft_model_path"),
        why="the STANDALONE worker runs its draft as a model of its own and hands it none",
        fix=Fix(f"use {algorithm}", set={"speculative_algorithm": algorithm}),
    )


RULE = rule(
    "SPL425",
    "standalone-head",
    Severity.WARNING,
    check,
    algorithms=("STANDALONE",),
    sources=(
        "sglang 0.5.23 speculative/standalone_worker_v2.py",
        "sglang 0.5.2 speculative/standalone_worker.py",
    ),
    doc=__doc__,
)
