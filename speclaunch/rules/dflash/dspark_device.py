"""DSPARK does not run on this device.

## What it does
Finds DSPARK on a device that the version does not have it for: CUDA (ROCm included), from 0.5.18
NPU, from 0.5.23 XPU.

## Why it matters
The engine refuses it while it reads its arguments: `DSpark speculative decoding only supports CUDA
device.`

## Example
```yaml
args:
  speculative_algorithm: DSPARK
  speculative_draft_model_path: a-dspark-draft
  device: cpu
```

## Use instead
```yaml
args:
  device: cpu
```

## Sources
- SGLang 0.5.16 arg_groups/speculative_hook.py:279, 0.5.23 arg_groups/speculative_hook.py:670
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the device is none of them."""
    devices = ["cuda"]
    devices += ["npu"] if plan.in_versions(">=0.5.18") else []
    devices += ["xpu"] if plan.in_versions(">=0.5.23") else []
    if plan.device not in devices:
        yield Verdict(
            f"DSPARK does not run on {plan.device} in SGLang {plan.version}",
            at=("device", "speculative_algorithm"),
            why=f"the engine refuses: it supports {', '.join(devices)} only",
            fix=Fix("serve without speculation there", set={"speculative_algorithm": None}),
        )


RULE = rule(
    "SPL621",
    "dspark-device",
    Severity.ERROR,
    check,
    algorithms=("DSPARK",),
    versions=">=0.5.16",
    sources=(
        "sglang 0.5.23 arg_groups/speculative_hook.py:670",
        "sglang 0.5.16 arg_groups/speculative_hook.py:279",
    ),
    doc=__doc__,
)
