"""Domino and LiLiCorr drafts do not work with DP attention.

## What it does
Finds DFLASH with data-parallel attention on CUDA and a draft with a Domino or LiLiCorr head, from
0.5.23 (before, DFLASH does not go with DP attention at all).

## Why it matters
The engine finds out when it builds the draft worker, after the target is loaded: `DFLASH with dp
attention supports plain DFlash and DFlash2 drafts; Domino and LiLiCorr heads are not supported.`

## Example
```yaml
args:
  speculative_algorithm: DFLASH
  speculative_draft_model_path: a-domino-draft
  tp_size: 4
  attn_dp_size: 4
  enable_dp_lm_head: true
```

## Use instead
```yaml
args:
  speculative_algorithm: DFLASH
  speculative_draft_model_path: a-domino-draft
  tp_size: 4
```

## Sources
- SGLang 0.5.23 speculative/dflash_worker_v2.py:457
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.dflash.common import dflash_config
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import attention_dp_size


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where such a head meets DP attention."""
    draft, ranks = plan.facts.draft, attention_dp_size(plan)
    if ranks <= 1 or draft is None or plan.device == "npu":
        return
    domino = dflash_config(plan).get("projector_type") == "domino"
    if domino or draft.architecture == "LiLiCorrDraftModel":
        yield Verdict(
            f"a {'Domino' if domino else 'LiLiCorr'} draft does not work with DP attention "
            f"({ranks} ranks)",
            at=("attn_dp_size", "enable_dp_attention", "speculative_draft_model_path"),
            why="the engine refuses: DFLASH with dp attention supports plain DFlash and DFlash2 "
            "drafts",
            fix=Fix(
                "take DP attention away, or use a plain DFLASH draft",
                set={"attn_dp_size": None, "enable_dp_attention": None},
            ),
        )


RULE = rule(
    "SPL611",
    "dflash-dp-heads",
    Severity.ERROR,
    check,
    algorithms=("DFLASH",),
    versions=">=0.5.23",
    sources=("sglang 0.5.23 speculative/dflash_worker_v2.py:457",),
    doc=__doc__,
)
