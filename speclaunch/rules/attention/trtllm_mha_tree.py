"""trtllm_mha verifies a chain, not a tree.

## What it does
Finds `speculative_eagle_topk` above 1 while prefill or decode runs on trtllm_mha.

## Why it matters
The engine refuses: `trtllm_mha backend only supports topk = 1 for speculative decoding.`

## Example
```yaml
args:
  attention_backend: trtllm_mha
  speculative_algorithm: EAGLE3
  speculative_num_steps: 3
  speculative_eagle_topk: 4
  speculative_num_draft_tokens: 16
```

## Use instead
```yaml
args:
  attention_backend: trtllm_mha
  speculative_algorithm: EAGLE3
  speculative_num_steps: 3
  speculative_eagle_topk: 1
  speculative_num_draft_tokens: 4
```

## Sources
- SGLang 0.5.1 server_args.py:658, 0.5.23 arg_groups/speculative_hook.py:1176
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.attention.draft import DRAFTS
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import number, runs_on

_NAME = "trtllm_mha"
_AT = (
    "speculative_eagle_topk",
    "attention_backend",
    "decode_attention_backend",
    "prefill_attention_backend",
)


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where a tree meets the backend."""
    topk = number(plan, "speculative_eagle_topk") or 1
    if topk <= 1:
        return
    written = plan.given("attention_backend") == _NAME and plan.in_versions("<0.5.15")
    if written or runs_on(plan, _NAME):  # up to 0.5.14 it counts also where nothing runs on it
        yield Verdict(
            f"{_NAME} supports speculative_eagle_topk 1, not {topk}",
            at=_AT,
            why="the engine refuses: trtllm_mha backend only supports topk = 1 for speculative "
            "decoding.",
            fix=Fix(
                "set speculative_eagle_topk to 1; the draft tokens follow",
                set={"speculative_eagle_topk": 1, "speculative_num_draft_tokens": None},
            ),
        )


RULE = rule(
    "SPL302",
    "trtllm-mha-tree",
    Severity.ERROR,
    check,
    algorithms=DRAFTS,
    versions=">=0.5.1",  # same either way: the backend exists from 0.5.1
    sources=("sglang 0.5.23 arg_groups/speculative_hook.py:1176",),
    doc=__doc__,
)
