"""EAGLE3 runs a draft that is not an EAGLE-3 one.

## What it does
Finds the algorithm EAGLE3 with a draft of another architecture: an EAGLE-2 head, a
multi-token-prediction layer, or a whole language model.

## Why it matters
The EAGLE3 worker asks its draft for `hot_token_id` (`get_hot_token_id` in 0.4.6), which only the
EAGLE-3 classes have, and for `set_embed`. Any other class fails while the engine starts, after
both models are loaded: `AttributeError: … object has no attribute 'hot_token_id'`. A draft in
another project's layout (`architectures: ["LlamaForCausalLM"]`, `["Eagle3LlamaForCausalLM"]`)
must be converted first.

## Example
```yaml
args:
  model_path: meta-llama/Llama-3.1-8B-Instruct
  speculative_algorithm: EAGLE3
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
- SGLang issues 36528, 5448
- SGLang 0.5.23 speculative/eagle_worker_v2.py:366, 0.4.6.post5 speculative/eagle_worker.py:128
- SGLang models/llama_eagle3.py, models/kimi_k25_eagle3.py (from 0.5.12): the EAGLE-3 classes
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.models.architectures import EAGLE_HEADS, eagle3_drafts
from speclaunch.rules.models.common import PLUGINS, draft_of


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the draft's class is known and is none of this version's."""
    draft = draft_of(plan)
    name = draft.architecture if draft is not None else None
    known = eagle3_drafts(plan)
    if name is None or name in known or plan.env(PLUGINS):
        return
    eagle2 = name in EAGLE_HEADS
    yield Verdict(
        f"EAGLE3 is given a draft of the architecture {name}",
        at=("speculative_algorithm", "speculative_draft_model_path"),
        why=f"SGLang {plan.version} takes {' or '.join(known)}; any other class fails while it "
        "starts, without the attribute hot_token_id",
        fix=Fix("use EAGLE", set={"speculative_algorithm": "EAGLE"})
        if eagle2
        else Fix("name an EAGLE-3 draft in SGLang's layout"),
    )


RULE = rule(
    "SPL407",
    "eagle-draft-under-eagle3",
    Severity.ERROR,
    check,
    algorithms=("EAGLE3",),
    sources=(
        "sglang 0.5.23 speculative/eagle_worker_v2.py:366",
        "sglang 0.4.6.post5 speculative/eagle_worker.py:128",
        "sglang issue #36528",
    ),
    doc=__doc__,
)
