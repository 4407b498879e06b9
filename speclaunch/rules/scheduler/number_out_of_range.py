"""A number that the engine refuses.

## What it does
Finds arguments whose number is outside of what the engine accepts: GPU indices, worker counts,
ratios and the like.

## Why it matters
The engine stops while it validates its arguments.

## Example
```yaml
args:
  tokenizer_worker_num: 0
```

## Use instead
```yaml
args:
  tokenizer_worker_num: 1
```

## Sources
- SGLang 0.5.3 server_args.py and 0.5.23 arg_groups/validation_hook.py (check_server_args)
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.scheduler.tables import NUMBERS


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a number."""
    for row in NUMBERS:
        value = plan.given(row.name)
        if value is None or row.allowed(value) or not plan.has_argument(row.name):
            continue
        if plan.in_versions(row.versions):
            yield Verdict(
                f"{plan.spelling(row.name)} must be {row.wanted}, not {value}",
                at=(row.name,),
                why=f"the engine stops: {row.said}",
                fix=Fix("take it away: the default does", set={row.name: None}),
            )


RULE = rule(
    "SPL251",
    "number-out-of-range",
    Severity.ERROR,
    check,
    sources=("sglang 0.5.23 arg_groups/validation_hook.py:204",),
    doc=__doc__,
)
