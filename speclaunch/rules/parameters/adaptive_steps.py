"""Adaptive speculation must begin with one of its candidate steps.

## What it does
Finds `speculative_adaptive` with a `speculative_num_steps` that is not among the steps that it may
choose from.

## Why it matters
From 0.5.13 the engine refuses it: `--speculative-num-steps=… is not in the adaptive config
candidate_steps …`. Without a `speculative_adaptive_config` the candidates are 1, 3 and 7; from
0.5.14 also 0, from 0.5.20 also 5. (0.5.12 adds the asked number to them.) The candidates in a file
are not read here: the rule has no verdict then.

## Example
```yaml
args:
  speculative_algorithm: EAGLE3
  speculative_adaptive: true
  speculative_num_steps: 4
  speculative_eagle_topk: 1
```

## Use instead
```yaml
args:
  speculative_algorithm: EAGLE3
  speculative_adaptive: true
  speculative_num_steps: 3
  speculative_eagle_topk: 1
```

## Sources
- SGLang 0.5.13.post1 speculative/adaptive_spec_params.py:137
- SGLang 0.5.23 arg_groups/speculative_hook.py:1417, speculative/adaptive_spec_params.py:28
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import adaptive_refusal, number


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the first number of steps is none of the candidates."""
    steps = number(plan, "speculative_num_steps")
    if steps is None or not plan.given("speculative_adaptive"):
        return
    if adaptive_refusal(plan) is not None:  # dropped before it is looked at
        return
    file = plan.given("speculative_adaptive_config")
    if file is not None:
        raise UnknownValueError(f"the candidate steps are in {file}")
    candidates = [1, 3, 7]
    candidates += [0] if plan.in_versions(">=0.5.14") else []
    candidates += [5] if plan.in_versions(">=0.5.20") else []
    if steps in candidates:
        return
    nearest = min(candidates, key=lambda candidate: (abs(candidate - steps), candidate))
    yield Verdict(
        f"speculative_num_steps {steps} is none of the steps of adaptive speculation "
        f"{sorted(candidates)}",
        at=("speculative_num_steps", "speculative_adaptive"),
        why=f"the engine refuses: --speculative-num-steps={steps} is not in the adaptive config "
        f"candidate_steps {sorted(candidates)}",
        fix=Fix(
            f"begin with {nearest} steps, or list the candidates in speculative_adaptive_config",
            set={"speculative_num_steps": nearest, "speculative_num_draft_tokens": None},
        ),
    )


RULE = rule(
    "SPL109",
    "adaptive-steps",
    Severity.ERROR,
    check,
    versions=">=0.5.13",
    algorithms=("EAGLE", "EAGLE3"),
    sources=(
        "sglang 0.5.23 arg_groups/speculative_hook.py:1417",
        "sglang 0.5.13.post1 speculative/adaptive_spec_params.py:137",
    ),
    doc=__doc__,
)
