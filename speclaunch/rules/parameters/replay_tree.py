"""Cached replay of linear attention verifies a chain, not a tree.

## What it does
Finds `enable_linear_replayssm_spec` (0.5.16: `enable_gdn_replayssm_spec`) with a
`speculative_eagle_topk` above 1.

## Why it matters
The engine refuses it while it reads its arguments: `--enable-linear-replayssm-spec requires a
linear draft chain (--speculative-eagle-topk in {None, 1})`.

## Example
```yaml
args:
  speculative_algorithm: EAGLE
  speculative_num_steps: 3
  speculative_eagle_topk: 4
  speculative_num_draft_tokens: 8
  enable_linear_replayssm_spec: true
```

## Use instead
```yaml
args:
  speculative_algorithm: EAGLE
  speculative_num_steps: 3
  speculative_eagle_topk: 1
  speculative_num_draft_tokens: 4
  enable_linear_replayssm_spec: true
```

## Sources
- SGLang 0.5.16 server_args.py:5373, 0.5.23 arg_groups/attention_hook.py:451
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_NAME = "enable_linear_replayssm_spec"
_TOPK = "speculative_eagle_topk"


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where a tree is asked for."""
    topk = plan.given(_TOPK)
    if plan.given(_NAME) and topk not in (None, 1):
        yield Verdict(
            f"{plan.spelling(_NAME)} does not work with {_TOPK} {topk}",
            at=(_NAME, _TOPK),
            why="the engine refuses: it requires a linear draft chain (--speculative-eagle-topk "
            "in {None, 1})",
            fix=Fix("draft a chain", set={_TOPK: 1, "speculative_num_draft_tokens": None}),
        )


RULE = rule(
    "SPL124",
    "replay-tree",
    Severity.ERROR,
    check,
    sources=(
        "sglang 0.5.23 arg_groups/attention_hook.py:451",
        "sglang 0.5.16 server_args.py:5373",
    ),
    doc=__doc__,
)
