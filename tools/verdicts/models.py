"""The checkpoints that configurations name: their `config.json`, and nothing else of them.

The engine's argument validation reads the config and never the weights, so that a directory with
one file stands for a model of any size. The dimensions are those of the public model that each
one is named after; a draft is the smallest config of its kind that fits its target.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Config = dict[str, Any]

FP8 = {
    "quant_method": "fp8",
    "fmt": "e4m3",
    "activation_scheme": "dynamic",
    "weight_block_size": [128, 128],
}
YARN_40 = {
    "type": "yarn",
    "factor": 40,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 4096,
}
LLAMA_3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def _dense(architecture: str, model_type: str, **fields: Any) -> Config:
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
        "rms_norm_eps": 1e-05,
        "initializer_range": 0.02,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "tie_word_embeddings": False,
        "use_cache": True,
        **fields,
    }


def _llama(architecture: str = "LlamaForCausalLM", layers: int = 32, **fields: Any) -> Config:
    return _dense(
        architecture,
        "llama",
        **{
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": layers,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "vocab_size": 128256,
            "max_position_embeddings": 131072,
            "rope_theta": 500000.0,
            "rope_scaling": LLAMA_3_ROPE,
            **fields,
        },
    )


def _qwen3(
    architecture: str = "Qwen3ForCausalLM", model_type: str = "qwen3", **fields: Any
) -> Config:
    return _dense(
        architecture,
        model_type,
        **{
            "hidden_size": 4096,
            "intermediate_size": 12288,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "vocab_size": 151936,
            "max_position_embeddings": 40960,
            "rope_theta": 1000000,
            **fields,
        },
    )


def _dflash(**fields: Any) -> Config:
    return _qwen3(
        "DFlashDraftModel",
        num_hidden_layers=5,
        block_size=16,
        dflash_config={
            "mask_token_id": 151669,
            "target_layer_ids": [1, 9, 17, 25, 33],
            **fields,
        },
    )


def _deepseek(architecture: str, model_type: str, **fields: Any) -> Config:
    return _dense(
        architecture,
        model_type,
        **{
            "hidden_size": 7168,
            "intermediate_size": 18432,
            "moe_intermediate_size": 2048,
            "num_hidden_layers": 61,
            "num_nextn_predict_layers": 1,
            "num_attention_heads": 128,
            "num_key_value_heads": 128,
            "q_lora_rank": 1536,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "n_routed_experts": 256,
            "n_shared_experts": 1,
            "num_experts_per_tok": 8,
            "n_group": 8,
            "topk_group": 4,
            "topk_method": "noaux_tc",
            "scoring_func": "sigmoid",
            "norm_topk_prob": True,
            "routed_scaling_factor": 2.5,
            "first_k_dense_replace": 3,
            "moe_layer_freq": 1,
            "vocab_size": 129280,
            "max_position_embeddings": 163840,
            "rope_theta": 10000,
            "rope_scaling": YARN_40,
            "quantization_config": FP8,
            **fields,
        },
    )


MODELS: dict[str, Config] = {
    # targets
    "llama": _llama(),
    "llama-3.2-1b": _llama(
        layers=16,
        hidden_size=2048,
        intermediate_size=8192,
        head_dim=64,
        tie_word_embeddings=True,
    ),
    "qwen3": _qwen3(),
    "qwen3-moe": _qwen3(
        "Qwen3MoeForCausalLM",
        model_type="qwen3_moe",
        hidden_size=2048,
        intermediate_size=6144,
        moe_intermediate_size=768,
        num_hidden_layers=48,
        num_key_value_heads=4,
        num_experts=128,
        num_experts_per_tok=8,
        decoder_sparse_step=1,
        norm_topk_prob=True,
        mlp_only_layers=[],
    ),
    "deepseek-v3": _deepseek("DeepseekV3ForCausalLM", "deepseek_v3"),
    "deepseek-v3.2": _deepseek(
        "DeepseekV32ForCausalLM",
        "deepseek_v32",
        index_head_dim=128,
        index_n_heads=64,
        index_topk=2048,
    ),
    "deepseek-v4": _dense(
        "DeepseekV4ForCausalLM",
        "deepseek_v4",
        hidden_size=7168,
        moe_intermediate_size=3072,
        num_hidden_layers=61,
        num_hash_layers=3,
        num_nextn_predict_layers=1,
        num_attention_heads=128,
        num_key_value_heads=1,
        head_dim=512,
        q_lora_rank=1536,
        qk_rope_head_dim=64,
        o_groups=16,
        o_lora_rank=1024,
        index_head_dim=128,
        index_n_heads=64,
        index_topk=1024,
        n_routed_experts=384,
        n_shared_experts=1,
        num_experts_per_tok=6,
        topk_method="noaux_tc",
        scoring_func="sqrtsoftplus",
        norm_topk_prob=True,
        routed_scaling_factor=2.5,
        swiglu_limit=10.0,
        expert_dtype="fp4",
        hc_eps=1e-06,
        hc_mult=4,
        hc_sinkhorn_iters=20,
        sliding_window=128,
        vocab_size=129280,
        max_position_embeddings=1048576,
        rope_theta=10000,
        compress_rope_theta=160000,
        compress_ratios=[128, *([128, 4] * 30), 0],
        rope_scaling={
            "type": "yarn",
            "factor": 16,
            "beta_fast": 32,
            "beta_slow": 1,
            "original_max_position_embeddings": 65536,
        },
        quantization_config={**FP8, "scale_fmt": "ue8m0"},
    ),
    "glm-4.5": _dense(
        "Glm4MoeForCausalLM",
        "glm4_moe",
        hidden_size=4096,
        intermediate_size=10944,
        moe_intermediate_size=1408,
        num_hidden_layers=46,
        num_nextn_predict_layers=1,
        num_attention_heads=96,
        num_key_value_heads=8,
        head_dim=128,
        partial_rotary_factor=0.5,
        n_routed_experts=128,
        n_shared_experts=1,
        num_experts_per_tok=8,
        n_group=1,
        topk_group=1,
        norm_topk_prob=True,
        routed_scaling_factor=1.0,
        first_k_dense_replace=1,
        attention_bias=True,
        use_qk_norm=False,
        vocab_size=151552,
        max_position_embeddings=131072,
        rope_theta=1000000,
    ),
    "mimo": _dense(
        "MiMoForCausalLM",
        "qwen2",  # the real one is `mimo`, which needs the checkpoint's own code
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=36,
        num_nextn_predict_layers=1,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        attention_bias=True,
        vocab_size=151680,
        max_position_embeddings=32768,
        rope_theta=640000,
    ),
    "gpt-oss": _dense(
        "GptOssForCausalLM",
        "gpt_oss",
        hidden_size=2880,
        intermediate_size=2880,
        num_hidden_layers=24,
        num_attention_heads=64,
        num_key_value_heads=8,
        head_dim=64,
        num_local_experts=32,
        num_experts_per_tok=4,
        sliding_window=128,
        layer_types=["sliding_attention", "full_attention"] * 12,
        attention_bias=True,
        swiglu_limit=7.0,
        vocab_size=201088,
        max_position_embeddings=131072,
        rope_theta=150000,
        rope_scaling={
            "rope_type": "yarn",
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "original_max_position_embeddings": 4096,
            "truncate": False,
        },
    ),
    "qwen3-next": _dense(
        "Qwen3NextForCausalLM",
        "qwen3_next",
        hidden_size=2048,
        intermediate_size=5120,
        moe_intermediate_size=512,
        shared_expert_intermediate_size=512,
        num_hidden_layers=48,
        num_nextn_predict_layers=1,
        num_attention_heads=16,
        num_key_value_heads=2,
        head_dim=256,
        partial_rotary_factor=0.25,
        full_attention_interval=4,
        linear_conv_kernel_dim=4,
        linear_key_head_dim=128,
        linear_num_key_heads=16,
        linear_num_value_heads=32,
        linear_value_head_dim=128,
        num_experts=512,
        num_experts_per_tok=10,
        decoder_sparse_step=1,
        norm_topk_prob=True,
        mlp_only_layers=[],
        vocab_size=151936,
        max_position_embeddings=262144,
        rope_theta=10000000,
    ),
    # drafts
    "llama-eagle3": _llama(
        "LlamaForCausalLMEagle3",
        layers=1,
        draft_vocab_size=32000,
        max_position_embeddings=131072,
    ),
    "llama-eagle3-2048": _llama(
        "LlamaForCausalLMEagle3",
        layers=1,
        draft_vocab_size=32000,
        max_position_embeddings=2048,
        rope_scaling=None,
    ),
    "llama-eagle": _llama("LlamaForCausalLMEagle", layers=1),
    "llama-dflash": _qwen3(
        "DFlashDraftModel",
        num_hidden_layers=5,
        vocab_size=128256,
        max_position_embeddings=131072,
        block_size=16,
        dflash_config={"mask_token_id": 128255, "target_layer_ids": [1, 9, 17, 25, 29]},
    ),
    "qwen3-dflash": _dflash(),
    "qwen3-domino": _dflash(
        projector_type="domino",
        shift_label=True,
        pure_draft_prefix_len=1,
        gru_hidden_dim=1024,
        emb_dim=512,
    ),
    "qwen3-domino-incomplete": _dflash(projector_type="domino"),
    "qwen3-lilicorr": _dflash(
        lilicorr_enabled=True,
        lilicorr_candidate_topk=16,
        lilicorr_hidden_size=0,
        lilicorr_num_layers=2,
        lilicorr_num_heads=4,
        lilicorr_mlp_ratio=4.0,
        lilicorr_factor_dim=64,
        lilicorr_vector_eps=1e-6,
        lilicorr_logit_scale=10.0,
    ),
    "qwen3-lilicorr-incomplete": _dflash(lilicorr_enabled=True, lilicorr_candidate_topk=12),
    "qwen3-dspark": _qwen3(
        "DSparkDraftModel",
        num_hidden_layers=3,
        block_size=7,
        dflash_config={
            "mask_token_id": 151669,
            "target_layer_ids": [1, 17, 33],
            "projector_type": "dspark",
        },
    ),
    "qwen3-0.6b": _qwen3(
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        tie_word_embeddings=True,
    ),
    "qwen3-moe-eagle3": _llama(
        "LlamaForCausalLMEagle3",
        layers=1,
        hidden_size=2048,
        intermediate_size=12288,
        num_key_value_heads=4,
        vocab_size=151936,
        draft_vocab_size=32000,
        max_position_embeddings=40960,
        rope_scaling=None,
        rope_theta=1000000,
    ),
    "gpt-oss-eagle3": _llama(
        "LlamaForCausalLMEagle3",
        layers=1,
        hidden_size=2880,
        intermediate_size=17280,
        num_attention_heads=64,
        head_dim=64,
        vocab_size=201088,
        draft_vocab_size=32000,
        rope_scaling=None,
    ),
    "gemma-4-assistant": {
        "architectures": ["Gemma4AssistantForCausalLM"],
        "model_type": "gemma4_assistant",
        "torch_dtype": "bfloat16",
        "text_config": {
            "model_type": "gemma4_text",
            "hidden_size": 256,
            "intermediate_size": 2048,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "vocab_size": 262144,
            "max_position_embeddings": 131072,
            "hidden_size_per_layer_input": 0,
            "vocab_size_per_layer_input": 0,
            "num_kv_shared_layers": 4,
            "use_double_wide_mlp": False,
        },
    },
}


def write(directory: Path) -> None:
    """Write `<directory>/<name>/config.json` for each of them."""
    for name, config in MODELS.items():
        (directory / name).mkdir(parents=True, exist_ok=True)
        text = json.dumps(config, indent=1, sort_keys=True) + "\n"
        (directory / name / "config.json").write_text(text)
