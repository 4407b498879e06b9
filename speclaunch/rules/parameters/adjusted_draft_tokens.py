"""With topk 1 the number of draft tokens is always steps + 1.

## What it does
Finds a `speculative_num_draft_tokens` that the engine replaces, because the draft is a chain
(`speculative_eagle_topk` 1).

## Why it matters
A chain of n steps has n tokens, and one more is the token that the target adds. The engine sets
`speculative_num_draft_tokens` to steps + 1 and logs one line about it. It serves, but not with
what was written: memory and the sizes of the CUDA graphs follow the other number.

## Example
```yaml
args:
  speculative_algorithm: EAGLE
  speculative_num_steps: 2
  speculative_eagle_topk: 1
  speculative_num_draft_tokens: 2
```

## Use instead
```yaml
args:
  speculative_algorithm: EAGLE
  speculative_num_steps: 2
  speculative_eagle_topk: 1
  speculative_num_draft_tokens: 3
```

## Sources
- SGLang 0.4.6.post5 server_args.py:421, 0.5.23 arg_groups/speculative_hook.py:1259
- sglang issue #8228
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import EAGLE_HANDLER, number


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the given number is not the one that a chain has."""
    asked = plan.given("speculative_num_draft_tokens")
    if asked is None or number(plan, "speculative_eagle_topk") != 1:
        return
    steps = number(plan, "speculative_num_steps")
    if steps is None or int(asked) == steps + 1:
        return
    yield Verdict(
        f"speculative_num_draft_tokens {asked} becomes {steps + 1} with topk 1 and {steps} steps",
        at=("speculative_num_draft_tokens",),
        why="the engine logs: speculative_num_draft_tokens is adjusted to speculative_num_steps + "
        "1 when speculative_eagle_topk == 1",
        fix=Fix(
            f"write {steps + 1}, or take the steps for {asked} tokens: {int(asked) - 1}",
            set={"speculative_num_draft_tokens": steps + 1},
            safe=True,
        ),
    )


RULE = rule(
    "SPL105",
    "adjusted-draft-tokens",
    Severity.WARNING,
    check,
    algorithms=EAGLE_HANDLER,
    sources=(
        "sglang 0.5.23 arg_groups/speculative_hook.py:1259",
        "sglang issue #8228",
    ),
    doc=__doc__,
)
