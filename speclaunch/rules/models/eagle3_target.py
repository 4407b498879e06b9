"""This version cannot capture the target's hidden states for EAGLE3.

## What it does
Finds EAGLE3 on a target whose class has no `set_eagle3_layers_to_capture` in the engine version.

## Why it matters
An EAGLE-3 draft reads hidden states from three layers inside the target, so the target's class
must be able to hand them out. Classes learned it one after the other: Llama in 0.4.6, Qwen3 by
0.4.10, Qwen2 in 0.5.2, DeepSeek in 0.5.4, GLM-4.5 in 0.5.5, Qwen3-Next in 0.5.9, Kimi-K2.5 in
0.5.10, Qwen3.5 in 0.5.11, Gemma 3 in 0.5.12. Any other fails while the engine starts, when the
target is loaded: `AttributeError: … has no attribute 'set_eagle3_layers_to_capture'`, later
`Model … does not implement set_eagle3_layers_to_capture`.

## Example
```yaml
engine: {version: 0.5.1.post3}
args:
  model_path: Qwen/Qwen2.5-14B-Instruct
  speculative_algorithm: EAGLE3
  speculative_draft_model_path: path/to/draft
```

## Use instead
A newer engine (0.5.2 for this target), or EAGLE with an EAGLE-2 draft.

## Sources
- SGLang 0.5.23 model_executor/model_runner_components/attention_backend_setup.py:55,
  0.4.6.post5 model_executor/model_runner.py:312; the classes in models/ of each release
- SpecForge issue 231
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.models.architectures import lacks_eagle3
from speclaunch.rules.models.common import PLUGINS, draft_path


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the target's class is known to lack the hook."""
    target = plan.facts.target
    name = target.architecture if target is not None else None
    if name is None or not lacks_eagle3(name, plan) or plan.env(PLUGINS):
        return
    if draft_path(plan) is None:
        return
    draft = plan.facts.draft
    own = draft.config.get("eagle_config") if draft is not None else None
    if isinstance(own, dict) and own.get("use_aux_hidden_state") is False:
        return
    yield Verdict(
        f"{name} cannot be the target of EAGLE3 in SGLang {plan.version}",
        at=("speculative_algorithm", "model_path"),
        why="its class has no set_eagle3_layers_to_capture; the engine fails while it starts",
        fix=Fix("use a newer engine, or another algorithm"),
    )


RULE = rule(
    "SPL415",
    "eagle3-target",
    Severity.ERROR,
    check,
    algorithms=("EAGLE3",),
    sources=(
        "sglang 0.5.23 model_executor/model_runner_components/attention_backend_setup.py:55",
        "sglang 0.4.6.post5 model_executor/model_runner.py:312",
    ),
    doc=__doc__,
)
