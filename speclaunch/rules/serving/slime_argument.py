"""slime says this argument itself and ignores yours.

## What it does
Finds `--sglang-…` options in a slime command that slime does not pass on.

## Why it matters
slime decides model, GPUs, ports and memory saving of its engines from its own options. It leaves
these arguments out of its parser, and what its parser does not know is ignored without a word; a
few others are overwritten. `--sglang-tp-size 4` has no effect; `--rollout-num-gpus-per-engine 4`
has. Options without the prefix (`--speculative-…`) are ignored as well; that is reported while the
file is read.

## Example
```bash
--rollout-num-gpus-per-engine 2
--sglang-tp-size 4
```

## Use instead
```bash
--rollout-num-gpus-per-engine 4
```

## Sources
- slime, slime/backends/sglang_utils/arguments.py (`skipped_args`, `parse_known_args`),
  slime/backends/sglang_utils/sglang_engine.py (`_compute_server_args`), August 2026
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.plan.request import Origin
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_OWN = {
    "model_path": "--hf-checkpoint",
    "tp_size": "--rollout-num-gpus-per-engine",
    "random_seed": "--rollout-seed",
    "enable_memory_saver": "--offload-rollout",
    "trust_remote_code": None,
    "host": None,
    "port": None,
    "nccl_port": None,
    "dist_init_addr": None,
    "nnodes": None,
    "node_rank": None,
    "base_gpu_id": None,
    "gpu_id_step": None,
    "skip_server_warmup": None,
    "enable_return_routed_experts": "--use-rollout-routing-replay",
}
"""Arguments that slime sets, and its own option for them."""


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict an argument that slime sets itself."""
    if plan.request.origin is not Origin.SLIME:
        return
    ignored = {one.name: one for one in plan.request.ignored}
    for name, option in _OWN.items():
        given = ignored.get(name) or plan.request.given.get(name)
        if given is None or given.written == option:
            continue
        yield Verdict(
            f"slime ignores --sglang-{name.replace('_', '-')}",
            place=given.place,
            why="it sets this argument of its engines itself",
            fix=Fix(f"use {option}, or leave it out" if option else "leave it out"),
        )


RULE = rule(
    "SPL805",
    "slime-argument",
    Severity.WARNING,
    check,
    sources=("slime, slime/backends/sglang_utils/arguments.py",),
    doc=__doc__,
)
