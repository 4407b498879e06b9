"""A draft tree on aiter.

## What it does
Finds `speculative_eagle_topk` above 1 where a draft runs on aiter (AMD), from 0.5.13 on.

## Why it matters
SpecV2 is the only worker from 0.5.13, and its draft stops at the first request: `AiterAttnBackend
SPEC_V2 path currently supports topk <= 1 only.`

## Example
```yaml
args:
  attention_backend: aiter
  speculative_algorithm: EAGLE
  speculative_num_steps: 3
  speculative_eagle_topk: 4
  speculative_num_draft_tokens: 16
```

## Use instead
```yaml
args:
  attention_backend: aiter
  speculative_algorithm: EAGLE
  speculative_num_steps: 3
  speculative_eagle_topk: 1
  speculative_num_draft_tokens: 4
```

## Sources
- SGLang 0.5.13 layers/attention/aiter_backend.py:742, 0.5.23 …:1399 and :2210
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.attention.draft import DRAFTS, backends_of_draft
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import number


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the draft extends on aiter."""
    topk = number(plan, "speculative_eagle_topk") or 1
    if topk <= 1:
        return
    if "aiter" in backends_of_draft(plan):
        yield Verdict(
            f"aiter drafts only chains: speculative_eagle_topk 1, not {topk}",
            at=("speculative_eagle_topk", "attention_backend"),
            why="the draft stops: NotImplementedError: AiterAttnBackend SPEC_V2 path currently "
            f"supports topk <= 1 only. Got topk={topk}.",
            fix=Fix(
                "set speculative_eagle_topk to 1; the draft tokens follow",
                set={"speculative_eagle_topk": 1, "speculative_num_draft_tokens": None},
            ),
        )


RULE = rule(
    "SPL308",
    "aiter-tree",
    Severity.ERROR,
    check,
    algorithms=DRAFTS,
    versions=">=0.5.13",
    sources=("sglang 0.5.23 layers/attention/aiter_backend.py:2210",),
    doc=__doc__,
)
