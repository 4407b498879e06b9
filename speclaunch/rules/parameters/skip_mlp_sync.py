"""`speculative_skip_dp_mlp_sync` is for EAGLE only.

## What it does
Finds the switch with any other algorithm (EAGLE3 too), or with none.

## Why it matters
The engine asserts it while it reads its arguments: `--speculative-skip-dp-mlp-sync is only
supported with speculative_algorithm == EAGLE, got …`. NEXTN counts as EAGLE. The argument came
with 0.5.11 and is gone from 0.5.23.

## Example
```yaml
args:
  speculative_algorithm: EAGLE3
  speculative_skip_dp_mlp_sync: true
```

## Use instead
```yaml
args:
  speculative_algorithm: EAGLE3
```

## Sources
- SGLang 0.5.11 server_args.py:3313, 0.5.22 arg_groups/speculative_hook.py:238
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_SWITCH = "speculative_skip_dp_mlp_sync"


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the switch is on without EAGLE."""
    if plan.given(_SWITCH) and plan.algorithm != "EAGLE":
        yield Verdict(
            f"{_SWITCH} does not work with {plan.algorithm or 'no speculative algorithm'}",
            at=(_SWITCH, "speculative_algorithm"),
            why="the engine refuses: --speculative-skip-dp-mlp-sync is only supported with "
            f"speculative_algorithm == EAGLE, got {plan.algorithm}.",
            fix=Fix(f"take {_SWITCH} away", set={_SWITCH: None}),
        )


RULE = rule(
    "SPL118",
    "skip-mlp-sync",
    Severity.ERROR,
    check,
    versions="<0.5.23",  # same either way: the argument is gone then
    sources=(
        "sglang 0.5.22 arg_groups/speculative_hook.py:238",
        "sglang 0.5.11 server_args.py:3313",
    ),
    doc=__doc__,
)
