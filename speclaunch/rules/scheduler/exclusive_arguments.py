"""Two arguments that exclude each other.

## What it does
Finds pairs of arguments of which the engine accepts only one: the hierarchical cache and a disabled
radix cache, two ways to batch tokenisation, and the like.

## Why it matters
The engine refuses the pair while it validates its arguments.

## Example
```yaml
args:
  enable_hierarchical_cache: true
  disable_radix_cache: true
```

## Use instead
```yaml
args:
  enable_hierarchical_cache: true
```

## Sources
- SGLang 0.5.1 server_args.py, 0.5.23 arg_groups/kv_cache_hook.py:394
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.scheduler.tables import PAIRS, is_on


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a pair."""
    for row in PAIRS:
        if not plan.is_given(row.name) or not is_on(plan, row.name) or not is_on(plan, row.other):
            continue
        if plan.in_versions(row.versions):
            yield Verdict(
                f"{row.name} and {row.other} exclude each other",
                at=(row.name, row.other),
                why=f"the engine refuses: {row.said}",
                fix=Fix(f"take {row.name} or {row.other} away", set={row.name: None}),
            )


RULE = rule(
    "SPL252",
    "exclusive-arguments",
    Severity.ERROR,
    check,
    sources=("sglang 0.5.23 arg_groups/kv_cache_hook.py:394",),
    doc=__doc__,
)
