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

from speclaunch.importer.slime_own import OWN
from speclaunch.plan.plan import Plan
from speclaunch.plan.request import Origin
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict an argument that slime sets itself."""
    if plan.request.origin is not Origin.SLIME:
        return
    ignored = {one.name: one for one in plan.request.ignored}
    for name, own in OWN.items():
        given = ignored.get(name)
        if given is None:
            continue
        option = own.option
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
