"""FlashInfer pads draft batches to the next captured size, which crashes in old engines.

## What it does
Finds EAGLE or EAGLE3 on FlashInfer before 0.5.3 where batch sizes below 33 have no graph of their
own.

## Why it matters
A batch between two captured sizes is padded to the larger one. In the draft's graphs on FlashInfer
the padding of these versions leads to illegal memory accesses and shape errors under load (issues
9888 and 9521). slime's guide names three ways round: another attention backend (fa3, triton), a
dense list of sizes, or no CUDA graphs, which costs much speed.

## Example
```yaml
engine: {version: 0.5.2}
args:
  attention_backend: flashinfer
  speculative_algorithm: EAGLE
```

## Use instead
```yaml
engine: {version: 0.5.2}
args:
  attention_backend: fa3
  speculative_algorithm: EAGLE
```
or every size from 1 to 32 in `cuda_graph_bs_decode`.

## Sources
- SGLang issues 9888, 9521; pull request 9687
- slime, Speculative decoding guide
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.performance.common import (
    capture_sizes,
    decodes_without_graphs,
    running_requests,
)
from speclaunch.rules.values import attention_backends

_DENSE = 32
"""Sizes up to here are listed one by one in the guide's work-around."""


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where small batches are padded on FlashInfer."""
    if decodes_without_graphs(plan) or attention_backends(plan)[1] != "flashinfer":
        return
    sizes = capture_sizes(plan)
    wanted = range(1, min(_DENSE, running_requests(plan)) + 1)
    missing = [size for size in wanted if size not in sizes] if sizes else None
    if missing == []:
        return
    shown = "a size" if missing is None else f"a size (such as {missing[0]})"
    yield Verdict(
        f"batches of {shown} without a graph of their own are padded, on FlashInfer",
        at=("attention_backend", "decode_attention_backend", "cuda_graph_bs_decode"),
        why="before 0.5.3 padded draft batches end in illegal memory accesses there (sglang issues "
        "#9888, #9521)",
        fix=Fix(
            "use fa3 or triton, or capture every size from 1 to 32",
            set={"attention_backend": "triton"},
        ),
    )


RULE = rule(
    "SPL703",
    "padded-draft-graphs",
    Severity.WARNING,
    check,
    algorithms=("EAGLE", "EAGLE3"),
    versions="<0.5.3",
    sources=("sglang issue #9888", "sglang issue #9521"),
    doc=__doc__,
)
