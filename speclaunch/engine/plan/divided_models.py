"""Architectures whose divisibility requirements are known from the engine's layer code."""

from __future__ import annotations

from collections.abc import Mapping

GROUPED = frozenset(
    {
        "AfmoeForCausalLM",
        "ArceeForCausalLM",
        "BailingMoeForCausalLM",
        "BailingMoeV2ForCausalLM",
        "DFlashDraftModel",
        "Ernie4_5_ForCausalLM",
        "Ernie4_5_MoeForCausalLM",
        "Exaone4ForCausalLM",
        "ExaoneForCausalLM",
        "Gemma2ForCausalLM",
        "Gemma3ForCausalLM",
        "Gemma3ForConditionalGeneration",
        "GemmaForCausalLM",
        "Glm4ForCausalLM",
        "Glm4MoeForCausalLM",
        "Glm4vForConditionalGeneration",
        "Glm4vMoeForConditionalGeneration",
        "GptOssForCausalLM",
        "GraniteForCausalLM",
        "GraniteMoeForCausalLM",
        "InternLM2ForCausalLM",
        "InternLM3ForCausalLM",
        "Llama4ForCausalLM",
        "Llama4ForConditionalGeneration",
        "LlamaForCausalLM",
        "LlamaForCausalLMEagle",
        "LlamaForCausalLMEagle3",
        "MiMoForCausalLM",
        "MiniCPMForCausalLM",
        "MiniMaxM2ForCausalLM",
        "MistralForCausalLM",
        "MixtralForCausalLM",
        "Olmo2ForCausalLM",
        "OlmoeForCausalLM",
        "Phi3ForCausalLM",
        "PhiMoEForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen2ForCausalLMEagle",
        "Qwen2MoeForCausalLM",
        "Qwen2VLForConditionalGeneration",
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen3ForCausalLM",
        "Qwen3MoeForCausalLM",
        "Qwen3NextForCausalLM",
        "Qwen3VLForConditionalGeneration",
        "Qwen3VLMoeForConditionalGeneration",
        "SolarForCausalLM",
    }
)
"""Models that check heads (`total_num_heads % tp_size`) and KV heads (the larger of KV heads and
ranks modulo the smaller) in their attention and `QKVParallelLinear` (0.4.6 layers/linear.py, 0.5.23
layers/linear.py:1139). The same in 0.4.6.post5, 0.5.3, 0.5.9, 0.5.16 and 0.5.23. Excludes models
whose config counts heads differently, or whose layers differ in heads."""
LATENT = frozenset(
    {
        "DeepseekV2ForCausalLM",
        "DeepseekV32ForCausalLM",
        "DeepseekV3ForCausalLM",
        "Eagle3DeepseekV2ForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "GlmMoeDsaForCausalLM",
        "KimiK25ForConditionalGeneration",
        "KimiVLForConditionalGeneration",
        "LongcatFlashForCausalLM",
        "MiniCPM3ForCausalLM",
    }
)
"""Models that check only heads (`num_heads % attn_tp_size`), because every rank has the complete
latent KV cache (models/deepseek_v2.py and models that build on it)."""
_FULL = ("num_attention_heads", "num_key_value_heads")
_HEADS_ALONE = (("num_attention_heads", None),)
OTHER_HEADS: Mapping[str, tuple[tuple[str, str | None], ...]] = {
    "Gemma3nForCausalLM": (_FULL,),
    "Gemma3nForConditionalGeneration": (_FULL,),
    "Gemma4ForCausalLM": _HEADS_ALONE,
    "Gemma4ForConditionalGeneration": _HEADS_ALONE,
    "Gemma4UnifiedForConditionalGeneration": _HEADS_ALONE,
    "MiMoV2FlashForCausalLM": (_FULL, ("swa_num_attention_heads", "swa_num_key_value_heads")),
    "MiMoV2ForCausalLM": (_FULL, ("swa_num_attention_heads", "swa_num_key_value_heads")),
    "Qwen3_5ForCausalLM": (_FULL,),
    "Qwen3_5ForConditionalGeneration": (_FULL,),
    "Qwen3_5MoeForCausalLM": (_FULL,),
    "Qwen3_5MoeForConditionalGeneration": (_FULL,),
    "Step3VLForConditionalGeneration": _HEADS_ALONE,
    "Step3p5ForCausalLM": (("num_attention_heads", "num_attention_groups"),),
}
"""Models whose checks were verified for attention only, with the config keys of heads and KV heads
for each kind of layer. The second key is None if KV heads are not checked: Step3 has one KV head
for all heads, and Gemma 4's global layers have a separate count. 0.5.23
models/gemma3n_causal.py:331, gemma4_causal.py:342, mimo_v2.py:691 and :883, qwen3_5.py:1292,
step3_vl.py:197, step3p5.py:297. 0.5.16 and 0.5.9 assert the same for the models that they support,
0.5.3 in gemma3n_causal.py:330 and step3_vl.py:198. DeepSeek V4 asserts nothing about its heads
(0.5.23 deepseek_v4.py:1035)."""
