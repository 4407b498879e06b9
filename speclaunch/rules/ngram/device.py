"""NGRAM does not run on this device.

## What it does
Finds NGRAM on a device that the version does not have it for: CUDA (ROCm included) up to 0.5.15,
and CPU from 0.5.16, and XPU from 0.5.21.

## Why it matters
The engine refuses it while it reads its arguments: `Ngram speculative decoding only supports CUDA
device.`

## Example
```yaml
args:
  speculative_algorithm: NGRAM
  device: cpu
engine: {version: 0.5.15.post1}
```

## Use instead
```yaml
args:
  speculative_algorithm: NGRAM
  device: cpu
engine: {version: 0.5.16}
```

## Sources
- SGLang 0.5.3.post3 server_args.py:1274, 0.5.16 arg_groups/speculative_hook.py:653
- SGLang 0.5.23 arg_groups/speculative_hook.py:1288
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the device is none of them."""
    devices = ["cuda"]
    devices += ["cpu"] if plan.in_versions(">=0.5.16") else []
    devices += ["xpu"] if plan.in_versions(">=0.5.21") else []
    if plan.device not in devices:
        yield Verdict(
            f"NGRAM does not run on {plan.device} in SGLang {plan.version}",
            at=("device", "speculative_algorithm"),
            why=f"the engine refuses: it supports {', '.join(devices)} only (CPU from 0.5.16, XPU "
            "from 0.5.21)",
            fix=Fix("serve without speculation there", set={"speculative_algorithm": None}),
        )


RULE = rule(
    "SPL501",
    "ngram-device",
    Severity.ERROR,
    check,
    algorithms=("NGRAM",),
    sources=(
        "sglang 0.5.23 arg_groups/speculative_hook.py:1288",
        "sglang 0.5.3.post3 server_args.py:1274",
    ),
    doc=__doc__,
)
