"""The target's class does not hand its hidden states to a DFLASH or DSPARK draft.

## What it does
Finds DFLASH or DSPARK with a target whose model class, in this version, cannot record the hidden
states of its layers for the draft.

## Why it matters
The draft reads them at every step. The engine loads the target, and refuses before it captures
CUDA graphs: `Model … does not implement set_dflash_layers_to_capture, which is required for
DFLASH.` Each release adds classes that do: Llama, Qwen3 and DeepSeek V3 in 0.5.11, Gemma 4 in
0.5.14, MiMo V2 in 0.5.20. (DSPARK takes a hook of its own, too; Kimi Linear and DeepSeek V4 have
that alone.)

## Example
```yaml
engine: {version: 0.5.13.post1}
args:
  model_path: google/gemma-4-31b-it
  speculative_algorithm: DFLASH
  speculative_draft_model_path: a-draft-for-it
```

## Use instead
```yaml
engine: {version: 0.5.14}
args:
  model_path: google/gemma-4-31b-it
  speculative_algorithm: DFLASH
  speculative_draft_model_path: a-draft-for-it
```

## Sources
- SGLang 0.5.11 model_executor/model_runner.py:827
- SGLang 0.5.23 model_executor/model_runner_components/attention_backend_setup.py:69
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.architectures import architectures
from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import algorithm_names

_WRAPPERS = ("Mistral3ForConditionalGeneration", "MiniCPMV")
"""Classes that pass what they lack on to the model within."""
_DSPARK_HOOKS = {
    "DeepseekV4ForCausalLM": ">=0.5.16",
    "KimiK3ForConditionalGeneration": ">=0.5.17",
    "KimiLinearForCausalLM": ">=0.5.17",
    "BailingMoeV3ForCausalLM": ">=0.5.19",
    "KimiK3LinearForCausalLM": ">=0.5.19",
}
"""Classes with a hook for DSPARK, which those with one for DFLASH do not need."""


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the class is known to lack the hook."""
    target = plan.facts.target
    name = "" if target is None else target.architecture or ""
    if plan.algorithm not in algorithm_names(plan):  # that is SPL101
        return
    known = architectures(plan.request.version)
    hooks = {*known.dflash_hooks, *(n for n in known.registered if n.startswith(_WRAPPERS))}
    if plan.algorithm == "DSPARK":
        hooks |= {n for n, since in _DSPARK_HOOKS.items() if plan.in_versions(since)}
    # Packages beside the engine may register another class under the name.
    if name not in known.registered - hooks or plan.env("SGLANG_EXTERNAL_MODEL_PACKAGE"):
        return
    yield Verdict(
        f"{name} cannot be the target of {plan.algorithm} in SGLang {plan.version}",
        at=("speculative_algorithm", "model_path"),
        why="its class has no set_dflash_layers_to_capture; the engine refuses once the target is "
        "loaded",
        fix=Fix("use a newer engine, or another algorithm"),
    )


RULE = rule(
    "SPL612",
    "dflash-target-hook",
    Severity.ERROR,
    check,
    algorithms=("DFLASH", "DSPARK"),
    sources=(
        "sglang 0.5.23 model_executor/model_runner_components/attention_backend_setup.py:69",
        "sglang 0.5.11 model_executor/model_runner.py:827",
    ),
    doc=__doc__,
)
