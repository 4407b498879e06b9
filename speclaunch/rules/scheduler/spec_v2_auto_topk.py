"""Chosen parameters give SpecV2 a tree that it cannot verify, up to 0.5.12.

## What it does
Finds SpecV2 with steps, topk and draft tokens all left to the engine, and a target for which the
engine chooses a topk above 1: LlamaForCausalLM and Grok get 5, 4 and 8, before 0.5.8 nearly every
target does.

## Why it matters
The engine looks at topk before it chooses one, so its own refusal (0.5.7 to 0.5.10) and its own
fallback (0.5.11 and 0.5.12) do not see it. The worker then takes the first tokens of the tree for
the accepted path: it serves wrong tokens, or stops with `Sizes of tensors must match`.

## Example
```yaml
engine:
  version: "0.5.11"
args:
  model_path: meta-llama/Llama-3.1-8B-Instruct
  speculative_algorithm: EAGLE3
```

## Use instead
```yaml
args:
  speculative_algorithm: EAGLE3
  speculative_num_steps: 5
  speculative_eagle_topk: 1
  speculative_num_draft_tokens: 6
```

## Sources
- SGLang 0.5.11 server_args.py:3463: topk is tested, then chosen
- SGLang 0.5.11 managers/scheduler_output_processor_mixin.py:374: the answer is the first tokens
  of the tree, as many as were accepted
- SGLang 0.5.4 to 0.5.12 speculative/eagle_worker_v2.py: nothing calls
  `move_accepted_tokens_to_target_kvcache`
- sglang issue #13352
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import number, runs_spec_v2


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the engine chooses a tree for a worker that takes chains."""
    if plan.is_given("speculative_eagle_topk") or plan.is_given("speculative_num_steps"):
        return
    if not runs_spec_v2(plan):
        return
    topk = number(plan, "speculative_eagle_topk") or 1
    if topk <= 1:
        return
    steps = number(plan, "speculative_num_steps") or 3
    yield Verdict(
        f"the engine chooses speculative_eagle_topk {topk} for this target, and SpecV2 of SGLang "
        f"{plan.request.version} verifies only topk 1",
        at=("speculative_algorithm", "SGLANG_ENABLE_SPEC_V2"),
        why="the choice is made after the check: nothing refuses it, and the worker takes the "
        "first tokens of the tree for the accepted path",
        fix=Fix(
            f"set the parameters: {steps} steps, topk 1, {steps + 1} draft tokens",
            set={
                "speculative_num_steps": steps,
                "speculative_eagle_topk": 1,
                "speculative_num_draft_tokens": steps + 1,
            },
            safe=True,
        ),
    )


RULE = rule(
    "SPL202",
    "spec-v2-auto-topk",
    Severity.ERROR,
    check,
    versions=">=0.5.4,<0.5.13",
    sources=(
        "sglang 0.5.11 managers/scheduler_output_processor_mixin.py:374",
        "sglang 0.5.11 server_args.py:3463",
        "sglang issue #13352",
    ),
    doc=__doc__,
)
