"""DFLASH does not run on this device.

## What it does
Finds DFLASH on a device that the version does not have it for: CUDA (ROCm included) from 0.5.16,
and NPU from 0.5.17, and XPU from 0.5.20.

## Why it matters
The engine refuses it while it reads its arguments: `DFLASH speculative decoding only supports CUDA
device.` (0.5.11 to 0.5.15 do not look.)

## Example
```yaml
args:
  speculative_algorithm: DFLASH
  speculative_draft_model_path: z-lab/Qwen3-4B-DFlash-b16
  device: cpu
```

## Use instead
```yaml
args:
  device: cpu
```

## Sources
- SGLang 0.5.16 arg_groups/speculative_hook.py:151, 0.5.20 arg_groups/speculative_hook.py:202
- SGLang 0.5.23 arg_groups/speculative_hook.py:298
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the device is none of them."""
    devices = ["cuda"]
    devices += ["npu"] if plan.in_versions(">=0.5.17") else []
    devices += ["xpu"] if plan.in_versions(">=0.5.20") else []
    if plan.device not in devices:
        yield Verdict(
            f"DFLASH does not run on {plan.device} in SGLang {plan.version}",
            at=("device", "speculative_algorithm"),
            why=f"the engine refuses: it supports {', '.join(devices)} only",
            fix=Fix("serve without speculation there", set={"speculative_algorithm": None}),
        )


RULE = rule(
    "SPL601",
    "dflash-device",
    Severity.ERROR,
    check,
    algorithms=("DFLASH",),
    versions=">=0.5.16",
    sources=(
        "sglang 0.5.23 arg_groups/speculative_hook.py:298",
        "sglang 0.5.16 arg_groups/speculative_hook.py:151",
    ),
    doc=__doc__,
)
