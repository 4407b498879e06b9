"""The draft's attention backend is replaced: DFLASH does not have it.

## What it does
Finds DFLASH with a `speculative_draft_attention_backend` that the engine replaces by flashinfer
(by triton on ROCm and XPU).

## Why it matters
A DFLASH draft attends within a block in both directions, which few backends do. The engine logs a
warning and takes another one. It keeps flashinfer, fa3, fa4 and triton; ascend from 0.5.13;
intel_xpu from 0.5.20; and trtllm_mha from 0.5.17 where all layers of the draft use sliding
attention, or the draft is causal.

## Example
```yaml
args:
  speculative_algorithm: DFLASH
  speculative_draft_model_path: z-lab/Qwen3-4B-DFlash-b16
  speculative_draft_attention_backend: torch_native
```

## Use instead
```yaml
args:
  speculative_algorithm: DFLASH
  speculative_draft_model_path: z-lab/Qwen3-4B-DFlash-b16
  speculative_draft_attention_backend: flashinfer
```

## Sources
- SGLang 0.5.11 speculative/dflash_worker.py:103, 0.5.17 arg_groups/speculative_hook.py:443
- SGLang 0.5.23 arg_groups/speculative_hook.py:937, arg_groups/choices.py:103
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_NAME = "speculative_draft_attention_backend"


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the asked backend is not the one that runs."""
    backend = plan.given(_NAME)
    kept = ["flashinfer", "fa3", "fa4", "triton"]
    kept += ["ascend"] if plan.in_versions(">=0.5.13") else []
    kept += ["intel_xpu"] if plan.in_versions(">=0.5.20") else []
    if backend is None or backend in kept:
        return
    if backend == "trtllm_mha" and plan.in_versions(">=0.5.17"):
        if plan.facts.draft is None:
            raise UnknownValueError("the draft checkpoint is not known")
        if _is_one_way(plan.facts.draft):
            return
    yield Verdict(
        f"{_NAME} {backend} is replaced: DFLASH drafts on {', '.join(kept)}",
        at=(_NAME,),
        why="the engine logs that the DFLASH draft worker does not support it, and falls back to "
        "flashinfer (to triton on ROCm and XPU)",
        fix=Fix("name one of those, or none", set={_NAME: None}, safe=True),
    )


def _is_one_way(draft: Checkpoint) -> bool:
    """Whether all layers use sliding attention, or the draft is causal."""
    layers = draft.config.get("layer_types") or ()
    sliding = set(layers) == {"sliding_attention"} and len(layers) == draft.num_hidden_layers
    return sliding or draft.config.get("is_causal") is True


RULE = rule(
    "SPL608",
    "dflash-draft-backend",
    Severity.WARNING,
    check,
    algorithms=("DFLASH",),
    sources=(
        "sglang 0.5.23 arg_groups/speculative_hook.py:937",
        "sglang 0.5.11 speculative/dflash_worker.py:103",
    ),
    doc=__doc__,
)
