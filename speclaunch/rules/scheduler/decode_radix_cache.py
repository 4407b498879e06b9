"""The radix cache of a decode server with speculation.

## What it does
Finds `disaggregation_decode_enable_radix_cache` on a decode server that speculates, in the versions
and with the algorithms that refuse it.

## Why it matters
0.5.11 to 0.5.20 refuse every algorithm, 0.5.21 and 0.5.22 all but DSPARK, 0.5.23 all but DSPARK,
EAGLE and EAGLE3: `--disaggregation-decode-enable-radix-cache is incompatible with speculative
decoding`.

## Example
```yaml
engine:
  version: "0.5.22"
args:
  speculative_algorithm: EAGLE
  disaggregation_mode: decode
  disaggregation_decode_enable_radix_cache: true
```

## Use instead
```yaml
args:
  speculative_algorithm: EAGLE
  disaggregation_mode: decode
```

## Sources
- SGLang 0.5.11 server_args.py:3753, 0.5.22 arg_groups/pd_disaggregation_hook.py:112,
  0.5.23 arg_groups/speculative_hook.py:170
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_NAME = "disaggregation_decode_enable_radix_cache"
_SINCE = {"DSPARK": ">=0.5.21", "EAGLE": ">=0.5.23", "EAGLE3": ">=0.5.23"}
"""The algorithms that keep it, and from when on."""


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the decode server refuses the cache."""
    if not plan.value(_NAME) or plan.value("disaggregation_mode") != "decode":
        return
    if plan.algorithm is None:
        return
    kept = _SINCE.get(plan.algorithm)
    if kept is not None and plan.in_versions(kept):
        return
    yield Verdict(
        f"the radix cache of a decode server does not go with {plan.algorithm} speculation in "
        f"SGLang {plan.request.version}",
        at=(_NAME, "speculative_algorithm"),
        why="the engine refuses: --disaggregation-decode-enable-radix-cache is incompatible with "
        "speculative decoding",
        fix=Fix("take it away", set={_NAME: None}, safe=True),
    )


RULE = rule(
    "SPL232",
    "decode-radix-cache",
    Severity.ERROR,
    check,
    versions=">=0.5.11",  # same either way: the argument exists from 0.5.11
    sources=(
        "sglang 0.5.23 arg_groups/speculative_hook.py:170",
        "sglang 0.5.22 arg_groups/pd_disaggregation_hook.py:112",
    ),
    doc=__doc__,
)
