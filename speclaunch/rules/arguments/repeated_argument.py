"""An argument is given twice with different values.

## What it does
Finds arguments that a command gives more than once with different values.

## Why it matters
The parser takes the last one and says nothing. In a long script the first one is what people read
and change.

## Example
```bash
python3 -m sglang.launch_server --model-path m --speculative-num-steps 5 --speculative-num-steps 3
```

## Use instead
```bash
python3 -m sglang.launch_server --model-path m --speculative-num-steps 3
```

## Sources
- Python's argparse: a flag that is repeated stores its last value
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict an earlier value that is lost."""
    for earlier in plan.request.overridden:
        last = plan.request.given[earlier.name]
        if earlier.value == last.value:
            continue
        yield Verdict(
            f"{earlier.written} {earlier.value} is lost: it is given again later",
            why=f"the last one counts: {last.written} {last.value}, line {last.place.line}",
            fix=Fix("keep one of them"),
            place=earlier.place,
        )


RULE = rule(
    "SPL009",
    "repeated-argument",
    Severity.WARNING,
    check,
    sources=("Python's argparse",),
    doc=__doc__,
)
