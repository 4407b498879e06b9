"""A token map reads rows of the output layer that another GPU holds.

## What it does
Finds `speculative_token_map` with EAGLE where the output layer is spread over several GPUs
(`tp_size` above 1).

## Why it matters
The map (FR-Spec) holds token ids of the whole vocabulary. The engine picks these rows of the
target's output layer, of which each GPU has only its share: `index out of bounds` in a CUDA
kernel, and the server stops while it starts. Reported for 0.4.x and not repaired up to 0.5.23.

## Example
```yaml
args:
  tp_size: 2
  speculative_algorithm: EAGLE
  speculative_token_map: thunlp/LLaMA3-Instruct-8B-FR-Spec/freq_32768.pt
```

## Use instead
```yaml
args:
  tp_size: 2
  speculative_algorithm: EAGLE
```

## Sources
- sglang issue #4328
- SGLang 0.4.6.post5 speculative/eagle_worker.py:132, 0.5.23 speculative/eagle_worker_v2.py:375
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import attention_dp_size


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the output layer has several parts."""
    if plan.given("speculative_token_map") is None:
        return
    parts = int(plan.value("tp_size") or 1)
    if plan.value("enable_dp_lm_head"):  # then only the ranks of one attention group share it
        parts //= attention_dp_size(plan)
    if parts > 1:
        yield Verdict(
            f"speculative_token_map does not work with an output layer on {parts} GPUs",
            at=("speculative_token_map", "tp_size"),
            why="the engine picks the map's token ids out of one GPU's share of the vocabulary: "
            "index out of bounds",
            fix=Fix(
                "take speculative_token_map away, or serve on one GPU",
                set={"speculative_token_map": None},
            ),
        )


RULE = rule(
    "SPL114",
    "token-map-sharded",
    Severity.ERROR,
    check,
    algorithms=("EAGLE",),
    sources=("sglang issue #4328", "sglang 0.5.23 speculative/eagle_worker_v2.py:375"),
    doc=__doc__,
)
