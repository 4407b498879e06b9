"""STANDALONE does not work with DP attention.

## What it does
Finds STANDALONE speculation together with data-parallel attention (`enable_dp_attention` and more
than one DP rank, or `attn_dp_size` above 1).

## Why it matters
Every release that has STANDALONE refuses it while it validates its arguments:
`Currently standalone speculative decoding does not support dp attention.` With a `dp_size` of 1 the
engine switches DP attention off before it looks, and serves.

## Example
```yaml
args:
  speculative_algorithm: STANDALONE
  tp_size: 2
  dp_size: 2
  enable_dp_attention: true
```

## Use instead
```yaml
args:
  speculative_algorithm: STANDALONE
  tp_size: 2
```
or an algorithm that supports it (EAGLE, EAGLE3).

## Sources
- SGLang 0.5.2 server_args.py:726, 0.5.23 arg_groups/speculative_hook.py:1082
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import attention_dp_size


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where attention is data-parallel."""
    ranks = attention_dp_size(plan)
    if ranks > 1:
        yield Verdict(
            f"STANDALONE speculation does not support DP attention ({ranks} ranks)",
            at=("enable_dp_attention", "attn_dp_size", "speculative_algorithm"),
            why="the engine refuses: Currently standalone speculative decoding does not support "
            "dp attention.",
            fix=Fix(
                "take enable_dp_attention away, or use EAGLE or EAGLE3, which support it",
                set={"enable_dp_attention": None, "attn_dp_size": None},
            ),
        )


RULE = rule(
    "SPL212",
    "standalone-dp-attention",
    Severity.ERROR,
    check,
    algorithms=("STANDALONE",),
    versions=">=0.5.2",  # same either way: STANDALONE exists from 0.5.2
    sources=(
        "sglang 0.5.23 arg_groups/speculative_hook.py:1082",
        "sglang 0.5.2 server_args.py:726",
    ),
    doc=__doc__,
)
