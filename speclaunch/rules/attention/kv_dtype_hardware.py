"""A type of KV cache that the GPU cannot compute with.

## What it does
Finds the four-bit types and mxfp8 as `kv_cache_dtype` on a GPU, or a device, that the version does
not accept for them.

## Why it matters
The engine refuses: `--kv-cache-dtype=nvfp4 requires Blackwell SM100 or SM120.`, `KV4 is not
tested on non-CUDA platforms.`

## Example
```yaml
args:
  kv_cache_dtype: nvfp4     # on an H200
```

## Use instead
```yaml
args:
  kv_cache_dtype: fp8_e4m3
```

## Sources
- SGLang 0.5.7 server_args.py:1710, 0.5.16 server_args.py:5064, 0.5.23
  arg_groups/kv_cache_hook.py:105 and :128
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.attention.gpu import generation
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_NAME = "kv_cache_dtype"
_ANY = tuple(range(1, 20))
_TYPES = (
    ("nvfp4", ">=0.5.16", (10, 12), "--kv-cache-dtype=nvfp4 requires Blackwell SM100 or SM120."),
    ("mxfp8", ">=0.5.16", (10, 11, 12), "--kv-cache-dtype mxfp8 requires an SM100+ GPU"),
    ("fp4_mx_block16", ">=0.5.16", _ANY, "KV4 is not tested on non-CUDA platforms."),
    ("fp4_e2m1", ">=0.5.7,<0.5.21", _ANY, "KV4 is not tested on non-CUDA platforms."),
)


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for a type that this GPU does without."""
    asked = plan.given(_NAME)
    for name, versions, generations, said in _TYPES:
        if asked != name or not plan.in_versions(versions):
            continue
        if generation(plan) not in generations:
            yield Verdict(
                f"this hardware has no KV cache of type {name}",
                at=(_NAME,),
                why=f"the engine refuses: {said}",
                fix=Fix("leave it to the engine", set={_NAME: None}),
            )


RULE = rule(
    "SPL321",
    "kv-dtype-hardware",
    Severity.ERROR,
    check,
    sources=("sglang 0.5.23 arg_groups/kv_cache_hook.py:128",),
    doc=__doc__,
)
