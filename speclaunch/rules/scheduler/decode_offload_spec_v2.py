"""KV cache offload of a decode server with SpecV2.

## What it does
Finds `disaggregation_decode_enable_offload_kvcache` on a decode server together with
`SGLANG_ENABLE_SPEC_V2`, in 0.5.5 to 0.5.9.

## Why it matters
The engine refuses, whether it speculates or not: `Spec v2 and decode offload kv cache are
incompatible and cannot be enabled together.`

## Example
```yaml
engine:
  version: "0.5.9"
  env:
    SGLANG_ENABLE_SPEC_V2: "1"
args:
  disaggregation_mode: decode
  disaggregation_decode_enable_offload_kvcache: true
```

## Use instead
```yaml
engine:
  version: "0.5.9"
args:
  disaggregation_mode: decode
  disaggregation_decode_enable_offload_kvcache: true
```

## Sources
- SGLang 0.5.5 server_args.py:1784, 0.5.9 server_args.py:2701
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import spec_v2_requested

_NAME = "disaggregation_decode_enable_offload_kvcache"


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where both are on."""
    if not plan.value(_NAME) or plan.value("disaggregation_mode") != "decode":
        return
    if spec_v2_requested(plan):
        yield Verdict(
            "SpecV2 and the KV cache offload of a decode server do not go together in SGLang "
            f"{plan.request.version}",
            at=(_NAME, "SGLANG_ENABLE_SPEC_V2"),
            why="the engine refuses: Spec v2 and decode offload kv cache are incompatible and "
            "cannot be enabled together.",
            fix=Fix("take one of them away", set={_NAME: None}),
        )


RULE = rule(
    "SPL233",
    "decode-offload-spec-v2",
    Severity.ERROR,
    check,
    versions=">=0.5.5,<0.5.10",
    sources=("sglang 0.5.9 server_args.py:2701", "sglang 0.5.5.post3 server_args.py:1784"),
    doc=__doc__,
)
