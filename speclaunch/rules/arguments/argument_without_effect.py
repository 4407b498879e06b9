"""The engine accepts an argument and nothing reads it.

## What it does
Finds arguments that the parser of this version takes and whose value nothing in the release reads,
and arguments that are only kept so that old commands do not fail.

## Why it matters
The engine starts as if nothing were wrong, without what was asked for.

## Example
```bash
# on SGLang 0.5.10.post1: accepted with a warning, stores nothing
python3 -m sglang.launch_server --model-path m --enable-piecewise-cuda-graph
```

## Use instead
```bash
python3 -m sglang.launch_server --model-path m
```

## Sources
- Reading every release's source for its arguments (`tools/catalogue.py`)
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.engine.catalogue import ArgumentKind, name_of
from speclaunch.engine.renames import REMOVALS
from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict an argument without effect."""
    for given in plan.request.given.values():
        argument = plan.catalogue.by_name(name_of(given.written))
        if argument is None:
            continue
        if argument.read and argument.kind is not ArgumentKind.IGNORED:
            continue
        yield Verdict(
            f"{given.written} does nothing in SGLang {plan.request.version}",
            at=(given.name,),
            why=argument.replacement or REMOVALS.get(argument.name) or "nothing reads its value",
            fix=Fix("take it away", set={given.name: None}),
        )


RULE = rule(
    "SPL006",
    "argument-without-effect",
    Severity.WARNING,
    check,
    sources=("the source of each release, read by tools/catalogue.py",),
    doc=__doc__,
)
