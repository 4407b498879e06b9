"""torch.compile with CUDA graphs for every batch size.

## What it does
Finds `enable_torch_compile` together with `disable_cuda_graph_padding`, from 0.5.12 on.

## Why it matters
The engine refuses: without padding each batch size would be compiled and tuned for itself.
`--disable-cuda-graph-padding is incompatible with --enable-torch-compile.`

## Example
```yaml
args:
  enable_torch_compile: true
  disable_cuda_graph_padding: true
```

## Use instead
```yaml
args:
  enable_torch_compile: true
```

## Sources
- SGLang 0.5.12 server_args.py:7243, 0.5.23 arg_groups/validation_hook.py:189
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where both are on."""
    if plan.value("disable_cuda_graph_padding") and plan.value("enable_torch_compile"):
        yield Verdict(
            "enable_torch_compile does not go with disable_cuda_graph_padding",
            at=("disable_cuda_graph_padding", "enable_torch_compile"),
            why="the engine stops: AssertionError: --disable-cuda-graph-padding is incompatible "
            "with --enable-torch-compile. With padding disabled, every distinct batch size gets "
            "its own torch.compile + Triton autotune cycle",
            fix=Fix(
                "take disable_cuda_graph_padding away",
                set={"disable_cuda_graph_padding": None},
                safe=True,
            ),
        )


RULE = rule(
    "SPL238",
    "unpadded-torch-compile",
    Severity.ERROR,
    check,
    versions=">=0.5.12",
    sources=("sglang 0.5.23 arg_groups/validation_hook.py:189",),
    doc=__doc__,
)
