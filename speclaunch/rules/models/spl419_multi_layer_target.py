"""Multi-layer EAGLE on a model that has no such layers."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.plan.topics.drafts import own_path
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.models.common import PLUGINS

_SWITCH = "enable_multi_layer_eagle"
_LAYERED = {
    "MiMoV2FlashForCausalLM": ">=0.5.7",
    "MiMoV2ForCausalLM": ">=0.5.11",
    "MiMoV2MTP": ">=0.5.7",
    "Step3p5ForCausalLM": ">=0.5.9",
    "Step3p5MTP": ">=0.5.9",
    "Step3p7ForConditionalGeneration": ">=0.5.13",
    "InklingForConditionalGeneration": ">=0.5.16",
    "InklingForConditionalGenerationMTP": ">=0.5.16",
    "GigaChat35ForCausalLM": ">=0.5.21",
    "GigaChat35ForCausalLMNextN": ">=0.5.21",
}
"""Architectures whose draft class takes `draft_model_idx`, and from when on."""


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the user switched it on for a model without such layers."""
    if not plan.given(_SWITCH) or plan.env(PLUGINS):
        return
    model = plan.facts.target if own_path(plan) is None else plan.facts.draft
    name = model.architecture if model is not None else None
    if name is None or plan.in_versions(_LAYERED.get(name, "<0")):
        return
    yield Verdict(
        f"{name} has no layers for multi-layer EAGLE in SGLang {plan.version}",
        at=(_SWITCH,),
        why="the engine fails while it starts: the class does not take draft_model_idx (sglang "
        "issue #36536)",
        fix=Fix(
            "leave it out: the engine switches it on for the models that need it",
            set={_SWITCH: None},
        ),
    )


RULE = rule(
    "SPL419",
    "multi-layer-target",
    Severity.ERROR,
    check,
    algorithms=("EAGLE", "EAGLE3"),
    versions=">=0.5.9",
)
