"""A decode server of several ranks that does not say how prefill is balanced.

## What it does
Finds a decode server with `dp_size` above 1 and without `prefill_round_robin_balance`, in 0.5.2 to
0.5.7.

## Why it matters
The engine stops: `Prefill round robin balance is required when dp size > 1.` The prefill server
is to be started with `load_balance_method: round_robin`.

## Example
```yaml
engine:
  version: "0.5.7"
args:
  disaggregation_mode: decode
  tp_size: 8
  dp_size: 8
  enable_dp_attention: true
```

## Use instead
```yaml
args:
  disaggregation_mode: decode
  tp_size: 8
  dp_size: 8
  enable_dp_attention: true
  prefill_round_robin_balance: true
```

## Sources
- SGLang 0.5.2 server_args.py:822, 0.5.7 server_args.py:2188
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import number

_NAME = "prefill_round_robin_balance"


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the decode server is not told."""
    if plan.value("disaggregation_mode") != "decode" or plan.value(_NAME):
        return
    ranks = number(plan, "dp_size") or 1
    if ranks > 1 and not plan.env_flag("SGLANG_IS_IN_CI"):
        yield Verdict(
            f"a decode server with dp_size {ranks} needs {_NAME}",
            at=("dp_size", "disaggregation_mode"),
            why="the engine stops: AssertionError: Prefill round robin balance is required when "
            "dp size > 1. The prefill server needs load_balance_method round_robin",
            fix=Fix("set it", set={_NAME: True}),
        )


RULE = rule(
    "SPL263",
    "prefill-round-robin",
    Severity.ERROR,
    check,
    versions=">=0.5.2,<0.5.8",
    sources=("sglang 0.5.7 server_args.py:2188", "sglang 0.5.2 server_args.py:822"),
    doc=__doc__,
)
