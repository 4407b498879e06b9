"""What the layers of Llama and its like do not know: activations, positions, numbers of heads."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.reads.safe_json import mapping
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.models.common import llama_like

_KNOWN = ("default", "linear", "dynamic", "yarn", "deepseek_yarn", "llama3", "longrope")
_LATER = ("proportional",)
_SINCE = ">=0.5.11"
_OLD_NAMES = ("su", "mrope")
"""What transformers takes for `longrope` and `default`."""
_NEW_KEY = ">=0.5.10"
"""The first release with transformers 5, whose configs may say `rope_parameters` instead."""


def check_activation(plan: Plan) -> Iterator[Verdict]:
    """One verdict for each model that asks for another activation."""
    for name, checkpoint in llama_like(plan):
        asked = checkpoint.config.get("hidden_act", "silu")
        if asked != "silu":
            yield Verdict(
                f"{checkpoint.architecture} has no activation {asked}",
                at=(name,),
                why=f"`Unsupported activation: {asked}. Only silu is supported for now.` as "
                f"{checkpoint.name} is loaded",
                fix=Fix("use a checkpoint with `hidden_act: silu`"),
            )


def check_positions(plan: Plan) -> Iterator[Verdict]:
    """One verdict for each model with another type."""
    for name, checkpoint in llama_like(plan):
        scaling = mapping(checkpoint.config.get("rope_scaling"))
        if not scaling and plan.in_versions(_NEW_KEY):
            scaling = mapping(checkpoint.config.get("rope_parameters"))
        kind = scaling.get("rope_type", scaling.get("type"))
        known = (*_KNOWN, *_OLD_NAMES, *(_LATER if plan.in_versions(_SINCE) else ()))
        if isinstance(kind, str) and kind not in known:
            yield Verdict(
                f"SGLang {plan.version} knows no scaling of positions `{kind}`",
                at=(name,),
                why=f"`Unknown RoPE scaling type {kind}` as {checkpoint.name} is loaded",
                fix=Fix("correct `rope_type` in the config.json: " + ", ".join(_KNOWN)),
            )


def check_heads(plan: Plan) -> Iterator[Verdict]:
    """One verdict for each model whose numbers of heads do not divide."""
    for name, checkpoint in llama_like(plan):
        heads, shared = checkpoint.num_attention_heads, checkpoint.num_key_value_heads
        if heads and shared and heads % shared:
            yield Verdict(
                f"{heads} heads of {checkpoint.name} cannot share {shared} KV heads",
                at=(name,),
                why="each KV head serves as many heads as the others; attention fails on the first "
                "tokens",
                fix=Fix("correct `num_key_value_heads` in the config.json"),
            )


RULES = (
    rule("SPL431", "activation", Severity.ERROR, check_activation),
    rule("SPL432", "rope-type", Severity.ERROR, check_positions),
    rule("SPL433", "shared-heads", Severity.ERROR, check_heads),
)
