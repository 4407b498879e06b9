"""DeepSeek-V4 speculates only with EAGLE and topk 1, or with DSPARK.

## What it does
Finds a DeepSeek-V4 target with another algorithm (DSPARK counts from 0.5.16), or with EAGLE and
without an explicit `speculative_eagle_topk` of 1.

## Why it matters
The engine stops while it adjusts its arguments to the model: `Only EAGLE speculative algorithm with
topk == 1 is supported for DeepseekV4ForCausalLM`. It looks before it turns NEXTN into EAGLE and
before it chooses topk, so that NEXTN and an omitted topk are refused as well.

## Example
```yaml
args:
  model_path: deepseek-ai/DeepSeek-V4-Flash
  speculative_algorithm: NEXTN
```

## Use instead
```yaml
args:
  model_path: deepseek-ai/DeepSeek-V4-Flash
  speculative_algorithm: EAGLE
  speculative_num_steps: 3
  speculative_eagle_topk: 1
  speculative_num_draft_tokens: 4
```

## Sources
- SGLang 0.5.12 arg_groups/deepseek_v4_hook.py:36, 0.5.16 …:55, 0.5.23 …:148
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_ARCHITECTURES = ("DeepseekV4ForCausalLM",)
_NAME = "speculative_eagle_topk"


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the algorithm, as it was written, or topk is refused."""
    target = plan.facts.target
    written = plan.given("speculative_algorithm")
    if target is None or target.architecture not in _ARCHITECTURES or written is None:
        return
    allowed = ("EAGLE", "DSPARK") if plan.in_versions(">=0.5.16") else ("EAGLE",)
    if written not in allowed:
        yield Verdict(
            f"{target.architecture} speculates only with {' or '.join(allowed)}, not {written}",
            at=("speculative_algorithm",),
            why="the engine stops: AssertionError: Only EAGLE … supported for this model; it "
            "compares the name as it was written",
            fix=Fix("set it to EAGLE", set={"speculative_algorithm": "EAGLE", _NAME: 1}),
        )
    elif written == "EAGLE" and plan.given(_NAME) != 1:
        yield Verdict(
            f"{target.architecture} needs an explicit {_NAME} of 1, not {plan.given(_NAME)}",
            at=(_NAME, "speculative_algorithm"),
            why="the engine stops: AssertionError: Only EAGLE speculative algorithm with topk == 1 "
            "is supported; it looks before it chooses a topk",
            fix=Fix(
                "set topk to 1, with 3 steps and 4 draft tokens",
                set={
                    _NAME: 1,
                    "speculative_num_steps": plan.given("speculative_num_steps") or 3,
                    "speculative_num_draft_tokens": None,
                },
                safe=True,
            ),
        )


RULE = rule(
    "SPL243",
    "deepseek-v4-algorithm",
    Severity.ERROR,
    check,
    versions=">=0.5.12",
    sources=(
        "sglang 0.5.23 arg_groups/deepseek_v4_hook.py:148",
        "sglang 0.5.12.post1 arg_groups/deepseek_v4_hook.py:36",
    ),
    doc=__doc__,
)
