"""A served model name with a colon.

## What it does
Finds a colon in `served_model_name`, or in the `model_path` that stands in for it, from
0.5.5.post1 on. Up to 0.5.9 the address of an object store counts, too.

## Why it matters
`model:adapter` selects a LoRA adapter. The engine stops: `served_model_name cannot contain a colon
(':') character.`

## Example
```yaml
args:
  served_model_name: llama3.1:8b
```

## Use instead
```yaml
args:
  served_model_name: llama3.1-8b
```

## Sources
- SGLang 0.5.5.post1 server_args.py:3689, 0.5.10 server_args.py:6089, 0.5.23
  arg_groups/validation_hook.py:213
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_STORES = ("s3://", "gs://", "az://")
"""Names that are the address of an object store are let through (0.5.10 and later)."""


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for a colon."""
    name = str(plan.given("served_model_name") or plan.given("model_path") or "")
    stored = name.lower().startswith(_STORES) and plan.in_versions(">=0.5.10")
    if ":" in name and not stored:
        yield Verdict(
            f"the served model name {name} has a colon",
            at=("served_model_name", "model_path"),
            why="the engine stops: AssertionError: served_model_name cannot contain a colon (':') "
            "character. The colon is reserved for the 'model:adapter' syntax",
            fix=Fix(
                f"set it to {name.replace(':', '-')}",
                set={"served_model_name": name.replace(":", "-")},
            ),
        )


RULE = rule(
    "SPL262",
    "served-model-name",
    Severity.ERROR,
    check,
    versions=">=0.5.5.post1",
    sources=("sglang 0.5.23 arg_groups/validation_hook.py:213",),
    doc=__doc__,
)
