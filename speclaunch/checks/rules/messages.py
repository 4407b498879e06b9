"""Engine messages that rules predict, and a lookup of the rule for a message."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from speclaunch.checks.rules.interface import Rule
from speclaunch.checks.rules.table import RULES
from speclaunch.engine import beginning

ENGINE_MESSAGES: Mapping[str, tuple[str, ...]] = {
    "SPL109": ("--speculative-num-steps={} is not in the adaptive config",),
    "SPL111": ("--speculative-use-rejection-sampling ",),
    "SPL112": ("--speculative-use-block-verification ",),
    "SPL116": ("--speculative-draft-window-size ", "--speculative-draft-sink-size "),
    "SPL117": (
        "--enable-watermark supports speculative",
        "--enable-watermark is not supported with pipeline",
        "--enable-watermark is incompatible with --speculative",
    ),
    "SPL118": ("--speculative-skip-dp-mlp-sync is only supported",),
    "SPL119": (
        "--speculative-moe-runner-backend {} is not supported: the LoRA MoE runner",
        "Currently speculative MoE runner backend cannot be flashinfer_trtllm",
        "Currently speculative MoE runner backend doesn't support flashinfer_trtllm",
    ),
    "SPL121": ("--decoupled-spec-bind-endpoint",),
    "SPL201": ("Spec v2 currently only supports topk = 1",),
    "SPL211": ("Currently ngram speculative decoding does not support dp attention.",),
    "SPL212": ("Currently standalone speculative decoding does not support dp attention.",),
    "SPL221": (
        "Pipeline parallelism is not compatible with overlap schedule, speculative",
        "Pipeline parallelism currently only supports EAGLE",
        "SGLANG_ENABLE_PP_SPEC ",
        "PP + speculative decoding",
        "NPU PP + speculative",
    ),
    "SPL231": (
        "Currently LoRA is only compatible with NGRAM",
        "LoRA is only compatible with NGRAM",
        "LoRA with EAGLE/NEXTN",
    ),
    "SPL232": ("--disaggregation-decode-enable-radix-cache is incompatible with speculative",),
    "SPL233": ("Spec v2 and decode offload kv cache are incompatible",),
    "SPL234": ("--enable-pd-role-switch does not rebuild role-specific state",),
    "SPL235": ("--weight-cache-mode is not supported together with speculative",),
    "SPL236": ("Decode context parallel (",),
    "SPL238": ("--disable-cuda-graph-padding is incompatible with --enable-torch-compile",),
    "SPL239": ("CPUGraphRunner does not support speculative inference",),
    "SPL240": ("Streaming sessions are incompatible with speculative decoding v2",),
    "SPL241": ("Speculative decoding for {} is not compatible with radix cache",),
    "SPL242": ("mamba_track_interval {} must be greater than or equal to",),
    "SPL243": ("Only EAGLE speculative algorithm", "Only EAGLE and DSPARK speculative"),
    "SPL244": ("Gemma4AssistantForCausalLM draft requires",),
    "SPL246": ("Mamba extra_buffer is only supported", "Mamba extra_buffer is not supported"),
    "SPL254": (
        "enable_mixed_chunk is required for speculative",
        "enable_mixed_chunk is not supported with",
    ),
    "SPL267": (
        "Invalid quantization '{}'.",
        "The expert parallel size must be 1 or the same as the tensor parallel size",
        "FP8/MXFP8 Cutlass MoE is only supported with ep_size == 1",
    ),
    "SPL268": (
        "Prefill server does not support 'fake' as the transfer backend",
        "Different tp size is supported only when one tp is multiple of the other.",
        "Cannot set --disaggregation-decode-tp for the decode engine.",
        "Cannot set --disaggregation-decode-dp for the decode engine.",
        "--disaggregation-decode-enable-radix-cache currently requires",
        "--disaggregation-decode-enable-radix-cache is incompatible with --enable-hisparse",
        "--disaggregation-decode-enable-radix-cache is incompatible with --disaggregation-transfer",
    ),
    "SPL269": (
        "--enable-return-aux-hidden-states ",
        "--return-aux-hidden-state-layer-ids requires --enable-return-aux-hidden-states.",
    ),
    "SPL270": (
        "--quantization nvfp4_online is supported only on",
        "Unknown quantization method: ",
        "{} quantization is currently not supported in ROCm.",
    ),
    "SPL271": (
        "Flashinfer MoE A2A ",
        "FlashInfer MoE A2A is supported with",
        "FlashInfer MegaMOE is only supported with",
        "FlashInfer MegaMOE a2a backend requires",
        "DeepEP v2 MoE currently supports only",
        "moe_a2a_backend='pplx' ",
        "SGLANG_MORI_NUM_MAX_DISPATCH_TOKENS_PER_RANK (default",
        "SGLANG_PPLX_NUM_MAX_DISPATCH_TOKENS_PER_RANK (default",
    ),
    "SPL301": ("speculative_eagle_topk > 1 with page_size > 1 is",),
    "SPL302": ("trtllm_mha backend only supports topk = 1",),
    "SPL304": (
        "Speculative decoding is currently not supported with Flex Attention backend",
        "trtllm_mla backend does not support speculative decoding yet.",
        "Spec decoding is not supported for NSA backend now",
        "hpc_ops backend does not support speculative decoding for now.",
        "XPUAttentionBackend doesn't support speculative decoding yet, please use "
        "--attention-backend triton instead.",
        "MiniCPM backend does not support speculative decoding",
        "The hpc_ops attention backend does not support spec",
        "XPUAttentionBackend does not support speculative",
        "Speculative decoding is not supported for NSA",
        "NSA backend doesn't support speculative",
    ),
    "SPL305": (
        "Currently Flashinfer MLA only supports topk=1",
        "Currently FlashMLA only supports topk=1",
    ),
    "SPL307": ("FlashAttention backend doesn't support topk > 1 speculative",),
    "SPL308": ("AiterAttnBackend SPEC_V2 path currently supports topk",),
    "SPL312": (
        "EAGLE is not supported in attention backend",
        "EAGLE is not supported in decode attention backend",
    ),
    "SPL313": ("Currently only {} attention backends are supported for deterministic",),
    "SPL324": (
        "triton backend is the only supported backend on Blackwell GPUs for hybrid GDN models",
        "triton or trtllm_mha backend are the only supported backends on Blackwell GPUs for",
        "triton, trtllm_mha, fa4, or flashinfer backend are the only supported backends on",
        "Only {} backends are supported on Blackwell GPUs for hybrid GDN models.",
    ),
    "SPL325": (
        "{} does not support triton attention backend",
        "FlashInfer backend can significantly degrade the performance of Olmo3 models.",
    ),
    "SPL326": (
        "DeepSeek DSA only supports bf16/bfloat16 or fp8_e4m3 kv_cache_dtype",
        "DeepSeek NSA only supports bf16/bfloat16 or fp8_e4m3 kv_cache_dtype",
    ),
    "SPL327": (
        "KV4 MHA expects attention_backend",
        "KV4 MLA expects attention_backend",
        "KV4 FA4 ",
    ),
    "SPL328": ("SM100 native NVFP4 ",),
    "SPL426": ("multi-layer EAGLE requires speculative_num_draft_tokens",),
    "SPL427": ("Quantization method specified in the model config ({}) does not match",),
    "SPL501": ("Ngram speculative decoding only supports",),
    "SPL502": ("speculative_eagle_topk({}) > 1 with page_size(",),
    "SPL503": (
        "--speculative-ngram-external",
        "--speculative_ngram_external",
        "speculative-ngram-external",
        "speculative_ngram_external",
    ),
    "SPL508": (
        "For quantized MoE models, please make sure",
        "The output_size of gate's and up's weight = {} is not divisible by",
    ),
    "SPL601": (
        "DFLASH speculative decoding only supports",
        "DFLASH speculative decoding is not supported by",
    ),
    "SPL602": ("DFLASH speculative decoding requires setting --speculative-draft-model-path",),
    "SPL603": ("Currently DFLASH speculative decoding only supports pp_size == 1",),
    "SPL604": (
        "Currently DFLASH speculative decoding does not support dp attention",
        "DFLASH with dp attention ",
    ),
    "SPL605": (
        "DFLASH requires --speculative-dflash-block-size",
        "Both --speculative-num-draft-tokens and --speculative-dflash-block-size",
    ),
    "SPL606": (
        "DFLASH requires --speculative-dflash-draft-window-size",
        "DFLASH --speculative-dflash-draft-window-size",
    ),
    "SPL609": ("DFLASH Domino ", "--speculative-domino-candidate-pool-size"),
    "SPL610": (
        "DFLASH dflash_config.{} is required",
        "DFLASH dflash_config.{} must be",
        "dflash_config.{} is required",
        "dflash_config.{} must be",
        "LiLiCorr requires",
    ),
    "SPL611": ("DFLASH with dp attention supports plain DFlash",),
    "SPL612": (
        "Model {} does not implement set_dflash_layers_to_capture",
        "Model {} implements neither set_dspark",
    ),
    "SPL621": ("DSpark speculative decoding only supports",),
    "SPL622": ("DSpark with dp attention", "DSpark ignores --speculative-moe-a2a", "DSpark DP MoE"),
    "SPL623": (
        "Currently DSpark speculative decoding only supports pp_size",
        "DSpark pipeline parallel",
        "Pipeline parallel DSPARK",
    ),
    "SPL624": ("DSpark dense speculative decoding requires setting",),
    "SPL625": (
        "DSpark speculative_num_draft_tokens",
        "DSpark could not resolve",
        "DSpark requires --speculative-dspark-block-size",
    ),
    "SPL641": ("UNO reuses the target model",),
    "SPL642": ("UNO ",),
    "SPL644": ("UNO tree mode", "UNO requires --speculative"),
    "SPL645": ("UNO requires FA3",),
    "SPL820": ("Page size mismatch: prefill server has page_size={}",),
    "SPL821": ("KV cache dtype mismatch: prefill server has kv_cache_dtype={}",),
    "SPL824": ("PD with different TP sizes per DP rank",),
    "SPL825": ("Decode pp size ({}) should be equal to prefill pp size",),
}
"""Prefixes of the engine messages that each rule predicts, by rule code; `{}` matches any text."""


def rule_of(message: str) -> Rule | None:
    """Return the rule that predicts an engine message; None if no rule predicts it.

    The longest match wins: `UNO requires FA3` is more specific than `UNO `.
    """
    combined, each = _patterns()
    if combined.match(message) is None:
        return None
    found = [(match.end(), rule) for pattern, rule in each if (match := pattern.match(message))]
    return max(found, key=lambda pair: pair[0])[1]


@cache
def _patterns() -> tuple[re.Pattern[str], tuple[tuple[re.Pattern[str], Rule], ...]]:
    each = [
        (beginning(text), rule) for rule in RULES for text in ENGINE_MESSAGES.get(rule.code, ())
    ]
    combined = re.compile("|".join(f"(?:{pattern})" for pattern, _ in each))
    return combined, tuple((re.compile(pattern), rule) for pattern, rule in each)
