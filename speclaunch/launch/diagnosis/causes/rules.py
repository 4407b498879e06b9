"""Which lint rule says before the start what the engine says at it.

The texts are the beginnings of the engine's own messages (ValueError and assert, releases
0.4.6.post5 to 0.5.23); the codes are those of `speclaunch rules`.
"""

from __future__ import annotations

import re

_RULES: tuple[tuple[str, str], ...] = (
    (r"Spec v2 currently only supports topk = 1", "SPL201"),
    (r"Currently ngram speculative decoding does not support dp attention", "SPL211"),
    (r"Currently standalone speculative decoding does not support dp attention", "SPL212"),
    (r"Currently DFLASH speculative decoding does not support dp attention", "SPL604"),
    (r"DFLASH with dp attention supports plain DFlash", "SPL611"),
    (r"DFLASH with dp attention ", "SPL604"),
    (r"(?:DSpark with dp attention|DSpark ignores --speculative-moe-a2a|DSpark DP MoE)", "SPL622"),
    (r"Currently DFLASH speculative decoding only supports pp_size == 1", "SPL603"),
    (
        r"(?:Currently DSpark speculative decoding only supports pp_size|DSpark pipeline parallel"
        r"|Pipeline parallel DSPARK)",
        "SPL623",
    ),
    (
        r"(?:Pipeline parallelism (?:is not compatible with overlap schedule, speculative"
        r"|currently only supports EAGLE)|SGLANG_ENABLE_PP_SPEC |PP \+ speculative decoding"
        r"|NPU PP \+ speculative)",
        "SPL221",
    ),
    (
        r"(?:Currently LoRA is only compatible with NGRAM|LoRA is only compatible with NGRAM"
        r"|LoRA with EAGLE/NEXTN)",
        "SPL231",
    ),
    (r"--disaggregation-decode-enable-radix-cache is incompatible with speculative", "SPL232"),
    (r"Spec v2 and decode offload kv cache are incompatible", "SPL233"),
    (r"--enable-pd-role-switch does not rebuild role-specific state", "SPL234"),
    (r"--weight-cache-mode is not supported together with speculative", "SPL235"),
    (r"Decode context parallel \(", "SPL236"),
    (r"--disable-cuda-graph-padding is incompatible with --enable-torch-compile", "SPL238"),
    (r"CPUGraphRunner does not support speculative inference", "SPL239"),
    (r"Streaming sessions are incompatible with speculative decoding v2", "SPL240"),
    (r"Speculative decoding for \S{1,100} is not compatible with radix cache", "SPL241"),
    (r"mamba_track_interval \S{1,20} must be greater than or equal to", "SPL242"),
    (r"Mamba extra_buffer is (?:only|not) supported", "SPL246"),
    (r"Only EAGLE (?:speculative algorithm|and DSPARK speculative)", "SPL243"),
    (r"Gemma4AssistantForCausalLM draft requires", "SPL244"),
    (r"enable_mixed_chunk is (?:required for speculative|not supported with)", "SPL254"),
    (r"speculative_eagle_topk\(\S{1,20}\) > 1 with page_size\(", "SPL502"),
    (r"speculative_eagle_topk > 1 with page_size > 1 is", "SPL301"),
    (r"trtllm_mha backend only supports topk = 1", "SPL302"),
    (
        r"(?:trtllm_mla backend does not support speculative|hpc_ops backend does not support"
        r"|The hpc_ops attention backend does not support spec"
        r"|XPUAttentionBackend does(?:n't| not) support speculative"
        r"|MiniCPM backend does not support speculative"
        r"|Speculative decoding is currently not supported with Flex"
        r"|Spec(?:ulative)? decoding is not supported for NSA"
        r"|NSA backend doesn't support speculative)",
        "SPL304",
    ),
    (r"Currently (?:Flashinfer MLA|FlashMLA) only supports topk=1", "SPL305"),
    (r"FlashAttention backend doesn't support topk > 1 speculative", "SPL307"),
    (r"AiterAttnBackend SPEC_V2 path currently supports topk", "SPL308"),
    (r"EAGLE is not supported in (?:decode )?attention backend", "SPL312"),
    (r"Currently only .{1,200} attention backends are supported for deterministic", "SPL313"),
    (r"--speculative-use-rejection-sampling ", "SPL111"),
    (r"--speculative-use-block-verification ", "SPL112"),
    (r"--speculative-num-steps=\S{1,20} is not in the adaptive config", "SPL109"),
    (r"--speculative-draft-(?:window|sink)-size ", "SPL116"),
    (
        r"--enable-watermark (?:supports speculative|is not supported with pipeline"
        r"|is incompatible with --speculative)",
        "SPL117",
    ),
    (r"--speculative-skip-dp-mlp-sync is only supported", "SPL118"),
    (
        r"Currently speculative MoE runner backend (?:cannot be|doesn't support) flashinfer_trtllm",
        "SPL119",
    ),
    (r"--decoupled-spec-bind-endpoint", "SPL121"),
    (r"Ngram speculative decoding only supports", "SPL501"),
    (r"(?:--)?speculative[-_]ngram[-_]external", "SPL503"),
    (r"DFLASH speculative decoding (?:only supports|is not supported by)", "SPL601"),
    (r"DFLASH speculative decoding requires setting --speculative-draft-model-path", "SPL602"),
    (
        r"(?:DFLASH requires --speculative-dflash-block-size|Both --speculative-num-draft-tokens "
        r"and --speculative-dflash-block-size)",
        "SPL605",
    ),
    (r"DFLASH (?:requires )?--speculative-dflash-draft-window-size", "SPL606"),
    (r"DFLASH Domino |--speculative-domino-candidate-pool-size", "SPL609"),
    (r"(?:DFLASH )?dflash_config\.\S{1,80} (?:is required|must be)|LiLiCorr requires", "SPL610"),
    (
        r"Model \w{1,100} (?:does not implement set_dflash_layers_to_capture|implements neither "
        r"set_dspark)",
        "SPL612",
    ),
    (r"DSpark speculative decoding only supports", "SPL621"),
    (r"DSpark dense speculative decoding requires setting", "SPL624"),
    (
        r"DSpark (?:speculative_num_draft_tokens|could not resolve|requires "
        r"--speculative-dspark-block-size)",
        "SPL625",
    ),
    (r"UNO requires FA3", "SPL645"),
    (r"UNO (?:tree mode|requires --speculative)", "SPL644"),
    (r"UNO reuses the target model", "SPL641"),
    (r"UNO ", "SPL642"),
    (r"multi-layer EAGLE requires speculative_num_draft_tokens", "SPL419"),
)
RULE_OF_MESSAGE = "|".join(f"(?:{pattern})" for pattern, _ in _RULES)
_COMPILED = tuple((re.compile(pattern), code) for pattern, code in _RULES)


def rule_of(message: str) -> str | None:
    """The rule for a message of the engine, or None."""
    return next((code for pattern, code in _COMPILED if pattern.match(message)), None)
