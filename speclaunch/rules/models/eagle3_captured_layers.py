"""The EAGLE-3 draft reads layers that the target does not have.

## What it does
Compares the target layers that an EAGLE-3 draft names (`eagle_aux_hidden_state_layer_ids`) with
the number of the target's layers.

## Why it matters
The engine captures the hidden states of the layers that the draft's config names. A layer beyond
the last one is never captured; the draft then gets fewer states than its first layer takes, and
the first prefill fails (newer versions say `captured 2 of 3 aux hidden states`). Such a draft was
trained for a larger target.

## Example
```yaml
args:  # 24 layers, and a draft that reads layers 1, 17 and 33
  model_path: openai/gpt-oss-20b
  speculative_algorithm: EAGLE3
  speculative_draft_model_path: lmsys/EAGLE3-gpt-oss-120b-bf16
```

## Use instead
The draft that was trained for this very target.

## Sources
- SGLang 0.5.23 models/llama.py:941, layers/aux_hidden_states.py; 0.5.9 models/llama.py:790
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.models.common import pair


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for the layers that the target does not have."""
    both = pair(plan)
    if both is None:
        return
    target, draft = both
    layers = target.num_hidden_layers
    if layers is None or not draft.is_eagle3:
        return
    beyond = [layer for layer in draft.aux_hidden_layers if layer >= layers]
    if not beyond:
        return
    yield Verdict(
        f"the draft reads target layer {', '.join(map(str, beyond))}, the target has {layers}",
        at=("speculative_draft_model_path", "model_path"),
        why="a layer that is not there is not captured: the draft gets too few hidden states and "
        "the first prefill fails",
        fix=Fix("name a draft that was made for this target"),
    )


RULE = rule(
    "SPL416",
    "eagle3-captured-layers",
    Severity.ERROR,
    check,
    algorithms=("EAGLE3",),
    versions=">=0.4.10",
    sources=("sglang 0.5.23 models/llama.py:941", "sglang 0.5.9 models/llama.py:790"),
    doc=__doc__,
)
