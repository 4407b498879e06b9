"""Fewer requests than ranks of DP attention.

## What it does
Finds a `max_running_requests` below the number of DP ranks, up to 0.5.22 (0.5.23 gives each rank at
least one request).

## Why it matters
The limit is that of the whole server: each rank gets its share, rounded down. A share of 0 stops
the engine after it has loaded the weights: `AssertionError: max_running_request is zero`.

## Example
```yaml
args:
  tp_size: 8
  dp_size: 8
  enable_dp_attention: true
  max_running_requests: 4
```

## Use instead
```yaml
args:
  tp_size: 8
  dp_size: 8
  enable_dp_attention: true
  max_running_requests: 32
```

## Sources
- SGLang 0.5.3 managers/tp_worker.py (max_running_request is zero),
  0.5.10.post1 model_executor/model_runner_kv_cache_mixin.py:849
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import attention_dp_size


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where a rank gets no request."""
    limit = plan.given("max_running_requests")
    ranks = attention_dp_size(plan)
    if limit is not None and limit < ranks:
        yield Verdict(
            f"max_running_requests {limit} leaves each of {ranks} DP ranks none",
            at=("max_running_requests",),
            why=f"the limit is divided by the ranks: {limit} // {ranks} = 0, and the engine stops "
            "with AssertionError: max_running_request is zero",
            fix=Fix(
                f"set it to {ranks} or more: {ranks} is one request a rank",
                set={"max_running_requests": ranks},
            ),
        )


RULE = rule(
    "SPL258",
    "requests-per-rank",
    Severity.ERROR,
    check,
    versions="<0.5.23",
    sources=(
        "sglang 0.5.10.post1 model_executor/model_runner_kv_cache_mixin.py:849",
        "sglang 0.5.10.post1 managers/tp_worker.py:296",
    ),
    doc=__doc__,
)
