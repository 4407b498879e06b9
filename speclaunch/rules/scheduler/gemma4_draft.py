"""A Gemma 4 assistant draft with EAGLE3.

## What it does
Finds EAGLE3 with a draft whose architecture is Gemma4AssistantForCausalLM (from 0.5.12) or
Gemma4UnifiedAssistantForCausalLM (from 0.5.13).

## Why it matters
The engine refuses: `Gemma4AssistantForCausalLM draft requires --speculative-algorithm NEXTN or
EAGLE; EAGLE3 is not supported for this draft architecture.` With EAGLE or NEXTN it takes
FROZEN_KV_MTP by itself.

## Example
```yaml
args:
  speculative_algorithm: EAGLE3
  speculative_draft_model_path: google/gemma-4-assistant
```

## Use instead
```yaml
args:
  speculative_algorithm: NEXTN
  speculative_draft_model_path: google/gemma-4-assistant
```

## Sources
- SGLang 0.5.12 server_args.py:339, 0.5.23 arg_groups/speculative_hook.py:102
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_SINCE = {
    "Gemma4AssistantForCausalLM": ">=0.5.12",
    "Gemma4UnifiedAssistantForCausalLM": ">=0.5.13",
}


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for such a draft."""
    draft = plan.facts.draft
    for name in draft.architectures if draft is not None else ():
        if name in _SINCE and plan.in_versions(_SINCE[name]):
            yield Verdict(
                f"a {name} draft needs NEXTN or EAGLE, not EAGLE3",
                at=("speculative_algorithm", "speculative_draft_model_path"),
                why="the engine refuses: Gemma4AssistantForCausalLM draft requires "
                "--speculative-algorithm NEXTN or EAGLE",
                fix=Fix("set it to NEXTN", set={"speculative_algorithm": "NEXTN"}, safe=True),
            )


RULE = rule(
    "SPL244",
    "gemma4-draft",
    Severity.ERROR,
    check,
    algorithms=("EAGLE3",),
    sources=(
        "sglang 0.5.23 arg_groups/speculative_hook.py:102",
        "sglang 0.5.12.post1 server_args.py:339",
    ),
    doc=__doc__,
)
