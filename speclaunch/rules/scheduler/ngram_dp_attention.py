"""NGRAM does not work with DP attention.

## What it does
Finds NGRAM speculation together with data-parallel attention (`enable_dp_attention` and more than
one DP rank, or `attn_dp_size` above 1).

## Why it matters
Every release that has NGRAM refuses it while it validates its arguments:
`ValueError: Currently ngram speculative decoding does not support dp attention.` With a `dp_size`
of 1 the engine switches DP attention off before it looks, and serves.

## Example
```yaml
args:
  speculative_algorithm: NGRAM
  dp_size: 2
  tp_size: 2
  enable_dp_attention: true
```

## Use instead
```yaml
args:
  speculative_algorithm: NGRAM
  tp_size: 2
```
or an algorithm that supports it (EAGLE, EAGLE3).

## Sources
- SGLang 0.5.3 server_args.py:1305, 0.5.23 arg_groups/speculative_hook.py:1370
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
            f"NGRAM speculation does not support DP attention ({ranks} ranks)",
            at=("enable_dp_attention", "attn_dp_size", "speculative_algorithm"),
            why="the engine refuses: Currently ngram speculative decoding does not support dp "
            "attention.",
            fix=Fix(
                "take enable_dp_attention away, or use EAGLE or EAGLE3, which support it",
                set={"enable_dp_attention": None, "attn_dp_size": None},
            ),
        )


RULE = rule(
    "SPL211",
    "ngram-dp-attention",
    Severity.ERROR,
    check,
    algorithms=("NGRAM",),
    versions=">=0.5.3",  # same either way: NGRAM exists from 0.5.3
    sources=(
        "sglang 0.5.23 arg_groups/speculative_hook.py:1370",
        "sglang 0.5.3 server_args.py:1305",
    ),
    doc=__doc__,
)
