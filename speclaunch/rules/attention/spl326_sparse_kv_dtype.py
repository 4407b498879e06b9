"""A KV cache of a type that DeepSeek's sparse attention does not read."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.architectures import architectures
from speclaunch.plan.plan import Plan
from speclaunch.plan.topics.target import architecture_of, target_of
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_NAME = "kv_cache_dtype"
_TYPES = ("auto", "bf16", "bfloat16", "fp8_e4m3")
_FAMILY = (
    "DeepseekV3ForCausalLM",
    "DeepseekV32ForCausalLM",
    "MistralLarge3ForCausalLM",
    "GlmMoeDsaForCausalLM",
    "LongcatFlashForCausalLM",
)
"""The architectures of `sparse_attention` whose arguments are looked at in all releases."""


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for another type."""
    asked = plan.given(_NAME)
    if asked is None or asked in _TYPES or plan.device != "cuda":
        return
    name = architecture_of(plan)
    if name not in _FAMILY or name not in architectures(plan.request.version).sparse_attention:
        return
    if target_of(plan).config.get("index_topk") is None:
        return
    yield Verdict(
        f"the sparse attention of {target_of(plan).architecture} reads no KV cache of type {asked}",
        at=(_NAME,),
        why="the engine refuses: DeepSeek DSA only supports bf16/bfloat16 or fp8_e4m3 "
        "kv_cache_dtype",
        fix=Fix("set it to fp8_e4m3", set={_NAME: "fp8_e4m3"}),
    )


RULE = rule(
    "SPL326",
    "sparse-kv-dtype",
    Severity.ERROR,
    check,
    versions=">=0.5.4",
    says=(
        "DeepSeek DSA only supports bf16/bfloat16 or fp8_e4m3 kv_cache_dtype",
        "DeepSeek NSA only supports bf16/bfloat16 or fp8_e4m3 kv_cache_dtype",
    ),
)
