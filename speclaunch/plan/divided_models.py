"""Architectures whose layers were read for what they must be divisible by."""

from __future__ import annotations

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
"""Heads and KV heads: `total_num_heads % tp_size`, and of KV heads and ranks the larger by the
smaller (each model's attention; `QKVParallelLinear`, 0.4.6 layers/linear.py, 0.5.23
layers/linear.py:1139). The same in 0.4.6.post5, 0.5.3, 0.5.9, 0.5.16 and 0.5.23. Left out: models
whose config counts heads in another way, or not the same for all layers."""
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
"""Heads alone, every rank has the latent KV cache: `num_heads % attn_tp_size`
(models/deepseek_v2.py and those that build on it)."""
