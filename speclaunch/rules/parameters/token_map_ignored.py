"""A token map does nothing for EAGLE3.

## What it does
Finds `speculative_token_map` with EAGLE3.

## Why it matters
A token map (FR-Spec) restricts the draft of EAGLE to frequent tokens. An EAGLE-3 draft brings its
own map in its weights; the engine logs `Speculative token map specified, but EAGLE3 models already
have this. Ignoring the specified token map.`

## Example
```yaml
args:
  speculative_algorithm: EAGLE3
  speculative_token_map: thunlp/LLaMA3-Instruct-8B-FR-Spec/freq_32768.pt
```

## Use instead
```yaml
args:
  speculative_algorithm: EAGLE3
```

## Sources
- SGLang 0.4.6.post5 speculative/eagle_worker.py:94, 0.5.23 speculative/eagle_worker_v2.py:326
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where a map is given."""
    if plan.given("speculative_token_map") is not None:
        yield Verdict(
            "speculative_token_map is ignored with EAGLE3",
            at=("speculative_token_map",),
            why="an EAGLE-3 draft has its own map: the engine logs that it ignores the given one",
            fix=Fix(
                "take speculative_token_map away", set={"speculative_token_map": None}, safe=True
            ),
        )


RULE = rule(
    "SPL113",
    "token-map-ignored",
    Severity.WARNING,
    check,
    algorithms=("EAGLE3",),
    sources=(
        "sglang 0.5.23 speculative/eagle_worker_v2.py:326",
        "sglang 0.4.6.post5 speculative/eagle_worker.py:94",
    ),
    doc=__doc__,
)
