"""A checkpoint whose config the release's transformers refuses to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from speclaunch.plan.plan import Plan
from speclaunch.reads.safe_json import mapping
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_SPARSE = "deepseek_sparse_attention"


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for a config of another generation."""
    target = plan.facts.target
    if target is None:
        return
    said, older = _refused(plan, target.raw)
    if said:
        yield Verdict(
            f"SGLang {plan.version} cannot read the config of {target.name}",
            at=("model_path",),
            why=f"the transformers that it pins refuses it: {said}",
            fix=Fix("use a later SGLang" if older else "correct config.json, or use SGLang 0.5.10"),
        )


def _refused(plan: Plan, raw: Mapping[str, Any]) -> tuple[str, bool]:
    """What transformers says, and whether a later release can read it."""
    kind = raw.get("model_type")
    inner = mapping(raw.get("text_config")).get("model_type")
    if inner == "ministral3" and kind == "mistral3" and plan.in_versions(">=0.5.3,<0.5.10"):
        return "KeyError: 'ministral3'", True
    layers = raw.get("layer_types") or ()
    if kind == "glm_moe_dsa" and _SPARSE in layers and plan.in_versions(">=0.5.11,<0.5.13"):
        return "Class validation error for validator 'validate_layer_type'", True
    activation = mapping(raw.get("ffn_config")).get("ffn_act_fn")
    if kind == "dbrx" and isinstance(activation, str) and plan.in_versions(">=0.5.11"):
        return "Validation error for field 'ffn_act_fn': it has to be an object", False
    return "", False


RULE = rule("SPL428", "config-refused", Severity.ERROR, check)
