"""Which targets keep Mamba state beside their KV cache, as the releases list them."""

from __future__ import annotations

from speclaunch.plan.plan import Plan

EXTRA_BUFFER = {
    "Qwen3NextForCausalLM": ">=0.5.7",
    "Qwen3_5ForConditionalGeneration": ">=0.5.10",
    "Qwen3_5MoeForConditionalGeneration": ">=0.5.10",
    "InternS2PreviewForConditionalGeneration": ">=0.5.12",
    "MiniCPMV4_6ForConditionalGeneration": ">=0.5.12",
    "BailingMoeV2_5ForCausalLM": ">=0.5.13",
    "FalconH1ForCausalLM": ">=0.5.14",
    "GraniteMoeHybridForCausalLM": ">=0.5.14",
    "NemotronHForCausalLM": ">=0.5.14",
    "NemotronHPuzzleForCausalLM": ">=0.5.14",
    "KimiLinearForCausalLM": ">=0.5.16",
    "KimiK3ForConditionalGeneration": ">=0.5.18",
    "BailingMoeV3ForCausalLM": ">=0.5.20",
    "Qwen3_5ForCausalLM": ">=0.5.20",
    "Qwen3_5MoeForCausalLM": ">=0.5.20",
}
"""Targets with the strategy extra_buffer, and from when on (0.5.14 server_args.py:4338, 0.5.15 to
0.5.23 arg_groups/overrides.py, _MAMBA_EXTRA_BUFFER_ARCHS)."""

STRATEGY = "mamba_radix_cache_strategy"

_HYBRID = {
    **EXTRA_BUFFER,
    "FalconH1ForCausalLM": ">=0.5.7",
    "GraniteMoeHybridForCausalLM": ">=0.5.9",
    "JetNemotronForCausalLM": ">=0.5.7",
    "JetVLMForConditionalGeneration": ">=0.5.7",
    "Lfm2ForCausalLM": ">=0.5.9",
    "Lfm2MoeForCausalLM": ">=0.5.18",
    "NemotronHForCausalLM": ">=0.5.7",
    "ZayaForCausalLM": ">=0.5.15",
}
"""Targets whose radix cache the engine handles as hybrid (0.5.10 server_args.py:1914 to 2060)."""


def is_hybrid(plan: Plan) -> bool:
    """Whether the engine keeps Mamba state for the target; False where it is not known."""
    target = plan.facts.target
    if target is None or target.architecture not in _HYBRID:
        return False
    if target.architecture == "GraniteMoeHybridForCausalLM":
        return "mamba" in (target.config.get("layer_types") or ())
    return plan.in_versions(_HYBRID[target.architecture])


def has_extra_buffer(plan: Plan) -> bool:
    """Whether the target can have the strategy extra_buffer in this version."""
    target = plan.facts.target
    versions = target and EXTRA_BUFFER.get(target.architecture or "")
    return bool(versions) and plan.in_versions(str(versions))


def keeps_extra_buffer(plan: Plan) -> bool:
    """Whether the strategy is extra_buffer: asked for, or chosen (0.5.14 and later)."""
    if not has_extra_buffer(plan) or plan.given("disable_radix_cache"):
        return False
    asked = plan.given(STRATEGY) or "auto"
    if asked == "auto" and plan.in_versions(">=0.5.14"):
        if plan.value("disaggregation_mode") == "decode":
            return False  # its radix cache is off
        paged = (plan.given("page_size") or 1) > 1
        overlapped = not plan.given("disable_overlap_schedule")
        return (paged or overlapped) and plan.value("linear_attn_backend") == "triton"
    return str(asked).startswith("extra_buffer")
