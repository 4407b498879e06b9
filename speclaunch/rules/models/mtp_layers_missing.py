"""The target's config has no multi-token-prediction layer to draft with.

## What it does
Finds EAGLE (NEXTN) without a separate draft on a DeepSeek V3 or GLM-4 style target whose config
declares no multi-token-prediction layer, or more than one.

## Why it matters
These classes load exactly one such layer: `AssertionError: Only 1 nextn layer is supported`, when
the target has been loaded already. Models that share DeepSeek's architecture but were published
without the layer (`num_nextn_predict_layers: 0`) cannot draft for themselves.

## Example
```yaml
args:  # num_nextn_predict_layers: 0
  model_path: moonshotai/Kimi-K2-Instruct
  speculative_algorithm: EAGLE
```

## Use instead
```yaml
args:
  model_path: moonshotai/Kimi-K2-Instruct
  speculative_algorithm: EAGLE3
  speculative_draft_model_path: AQ-MedAI/Kimi-K2-Instruct-eagle3
```

## Sources
- SGLang 0.4.6.post5 models/deepseek_v2.py:1621, 0.5.23
  models/deepseek_common/deepseek_weight_loader.py:567, models/glm4_moe.py:1080
"""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.models.architectures import drafts_for_itself
from speclaunch.rules.models.common import draft_path

_ONE_LAYER = (
    "DeepseekV3ForCausalLM",
    "DeepseekV32ForCausalLM",
    "GlmMoeDsaForCausalLM",
    "Glm4MoeForCausalLM",
    "Glm4MoeLiteForCausalLM",
)


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the number of layers is known and not one."""
    target = plan.facts.target
    if draft_path(plan) is not None or target is None:
        return
    name = target.architecture
    if name not in _ONE_LAYER or not drafts_for_itself(name, plan):
        return
    if target.mtp_layers in (None, 1):
        return
    yield Verdict(
        f"the config declares {target.mtp_layers} multi-token-prediction layers; {name} drafts "
        "with one",
        at=("speculative_algorithm", "model_path"),
        why="the engine fails while it loads the draft: Only 1 nextn layer is supported",
        fix=Fix("name a separate draft, or use NGRAM"),
    )


RULE = rule(
    "SPL413",
    "mtp-layers-missing",
    Severity.ERROR,
    check,
    algorithms=("EAGLE",),
    sources=(
        "sglang 0.5.23 models/deepseek_common/deepseek_weight_loader.py:567",
        "sglang 0.4.6.post5 models/deepseek_v2.py:1621",
    ),
    doc=__doc__,
)
