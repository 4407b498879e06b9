"""Resolves settings from the target's config and kind: context, dtype, prefix cache, adapters.

Targets with linear-attention layers (Mamba, gated delta nets) cache recurrent states next to the KV
cache. This can exclude the overlap schedule or the prefix cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speclaunch.engine.facts.facts import SHORT_DTYPES
from speclaunch.engine.plan.plan import ChangeKind, UnknownValueError
from speclaunch.engine.plan.resolution.working import Working
from speclaunch.engine.plan.topics import attention
from speclaunch.engine.plan.topics.attention import BACKENDS, OWN_CPU_DEFAULTS, STRATEGY
from speclaunch.engine.plan.topics.gpu import BACKENDS_BY_PHASE, EAGER, PIECEWISE
from speclaunch.engine.plan.topics.gpu import GRAPHS_SWITCH as GRAPHS
from speclaunch.engine.plan.topics.spec_v2 import OVERLAP
from speclaunch.engine.plan.topics.target import halved, has_architecture

_NESTED = ("text_config", "thinker_config", "llm_config", "language_config", "audio_config")


def is_multimodal(working: Working) -> bool:
    """True if the engine serves the target as a multimodal model. Raises UnknownValueError."""
    architecture = working.architecture
    known = working.architectures
    enabled = working.user_value("enable_multimodal")
    if enabled is False or (enabled is None and architecture in known.text_only):
        return False
    if working.in_versions(">=0.5.18") and working.value("language_model_only"):
        return False
    if known.multimodal & set(working.target.architectures):
        return True
    return working.in_versions(">=0.5.10") and _has_a_nested_config(working)


def _has_a_nested_config(working: Working) -> bool:
    """True if the text model's config is nested, which also makes the target multimodal (0.5.10 and
    later)."""
    target = working.target
    if target.config:
        return any(isinstance(target.config.get(key), dict) for key in _NESTED[:-1])
    return target.is_multimodal


def of_config(working: Working, name: str) -> Any:
    """Return a value from the target's config; None if absent. Raises UnknownValueError."""
    if not working.target.config:
        raise UnknownValueError("the config of the target is unknown")
    return working.target.config.get(name)


def is_sparse(working: Working) -> bool:
    """True for models with DeepSeek's sparse attention (`is_deepseek_nsa`, later
    `is_deepseek_dsa`)."""
    if working.architecture not in working.architectures.sparse_attention:
        return False
    return of_config(working, "index_topk") is not None


def is_deepseek_v4(working: Working) -> bool:
    """True for DeepSeek V4 and its draft."""
    return any(name.startswith("DeepseekV4ForCausalLM") for name in working.target.architectures)


def is_nemotron_h(working: Working) -> bool:
    """True for Nemotron-H, which has Mamba layers between attention layers."""
    return any(name.startswith("NemotronH") for name in working.target.architectures)


NEMOTRON_H = (
    "NemotronHForCausalLM",
    "NemotronHPuzzleForCausalLM",
    "NemotronH_Omni_Reasoning_V3",
)
"""Nemotron-H architectures that have their own defaults (0.5.19
arg_groups/model_overrides/nemotron_h.py:20; the last from 0.5.20)."""


def nemotron_h_has_defaults(working: Working) -> bool:
    """True if the engine chooses Nemotron-H's backends for speculation: on Blackwell, if the user
    sets no attention backend.

    See 0.5.23 arg_groups/model_overrides/nemotron_h.py:125, 0.5.19 :99.
    """
    if working.in_versions("<0.5.19") or working.architecture not in NEMOTRON_H:
        return False
    if working.architecture == NEMOTRON_H[-1] and working.in_versions("<0.5.20"):
        return False
    if working.user_value("speculative_algorithm") is None:
        return False
    if any(working.user_value(name) is not None for name in BACKENDS):
        return False
    return working.capability // 10 in (10, 11, 12)


def nemotron_h_verifies_on_trtllm(working: Working) -> bool:
    """True for Nemotron-H with a chain on SM100, for which the engine chooses trtllm_mha, a page
    size of 64 and a state buffer.

    See 0.5.23 arg_groups/model_overrides/nemotron_h.py:128, 0.5.19 :102.
    """
    chain = working.user_value("speculative_eagle_topk") in (None, 1)
    return chain and nemotron_h_has_defaults(working) and working.capability // 10 == 10


def uses_kda(working: Working) -> bool:
    """True for models with Kimi's linear attention (`uses_kda_attention`)."""
    config = working.target.config
    if not config:
        return bool(set(working.target.architectures) & _KDA)
    linear = config.get("linear_attn_config")
    if isinstance(linear, Mapping) and linear.get("kda_layers"):
        return True
    heads = ("linear_num_heads", "linear_head_dim")
    named = all(config.get(key) is not None for key in heads)
    return named and "linear_attention" in (config.get("layer_types") or ())


_KDA = {
    "KimiLinearForCausalLM",
    "KimiK3LinearForCausalLM",
    "KimiK3ForConditionalGeneration",
    "Glm5NextForConditionalGeneration",
}
"""Architectures with Kimi's linear attention, for targets whose config is unknown."""


CONTEXT = "context_length"
DTYPE = "dtype"
_EMBEDDING_LIMIT = 8192
_IN_BFLOAT16 = (
    "GptOssForCausalLM",
    "MistralLarge3ForCausalLM",
    "PixtralForConditionalGeneration",
)


def resolve_model_defaults(working: Working) -> None:
    """Set the effective context length and dtype, as `ModelConfig` does.

    A value remains unchanged if a fact that determines it is missing.
    """
    with working.deciding(CONTEXT):
        if working.user_value(CONTEXT) is None:
            _context(working)
    with working.deciding(DTYPE):
        _dtype(working)


def _context(working: Working) -> None:
    """Set the context length that the target's config implies (`_derive_context_length`)."""
    own = working.target.context_in(working.plan.request.version)
    if own is None:
        return
    why = f"{own} tokens, derived from the target's config"
    if working.architecture == "EmbeddingGemma2Model" and own > _EMBEDDING_LIMIT:
        own, why = _EMBEDDING_LIMIT, f"{_EMBEDDING_LIMIT} tokens, the limit of EmbeddingGemma 2"
    source = "sglang 0.5.23 configs/model_config.py:1291, 0.4.6 configs/model_config.py:127"
    working.set(CONTEXT, own, why, source)


def dtype_of_both(working: Working) -> str | None:
    """Return the dtype that the engine forces on target and draft; None if it forces none.

    It overrides the user and both configs for GPT-OSS in mxfp4 (0.5.1 and later), Mistral Large 3
    and Pixtral (0.5.6.post1 and later). Raises UnknownValueError.
    """
    if working.in_versions("<0.5.1") or not working.may_be(_IN_BFLOAT16):
        return None
    if working.target.architecture is None:
        return None  # its config names no architecture, so it is none of these
    if working.architecture in _IN_BFLOAT16[1:]:
        return "bfloat16" if working.in_versions(">=0.5.6.post1") else None
    if working.architecture != _IN_BFLOAT16[0]:
        return None
    own = of_config(working, "quantization_config")
    method = own.get("quant_method") if isinstance(own, Mapping) else None
    return "bfloat16" if method == "mxfp4" else None


def _dtype(working: Working) -> None:
    """Resolve the dtype; auto replaces float32 with a 16-bit type (`_get_and_verify_dtype`)."""
    both = dtype_of_both(working)
    if both is not None:
        why = f"the engine serves {working.architecture} and its draft in {both}"
        working.set(
            DTYPE,
            both,
            why,
            "sglang 0.5.23 arg_groups/model_overrides/gpt_oss.py:63, model_override_base.py:20, "
            "0.5.11 server_args.py:1933, 0.5.1 server_args.py:2281",
        )
        return
    requested = str(working.value(DTYPE) or "auto").lower()
    source = "sglang 0.5.23 configs/model_config.py:2284, 0.4.6 configs/model_config.py:455"
    if requested != "auto":
        if requested in SHORT_DTYPES:
            why = f"{requested} is an alias"
            working.set(DTYPE, SHORT_DTYPES[requested], why, source)
        return
    target = working.target
    own = target.dtype
    if own is None and not target.config:
        return
    if own not in (None, "float32"):
        working.set(DTYPE, own, "auto uses the dtype of the target's config", source)
        return
    found = halved(target)
    statement = "states float32" if own else "states no dtype, which means float32"
    whose = "auto uses bfloat16 for Gemma" if found == "bfloat16" else "auto uses float16 instead"
    working.set(DTYPE, found, f"the target's config {statement}: {whose}", source)


RADIX = "disable_radix_cache"


def resolve_disaggregation(working: Working) -> None:
    """Switch off features on the servers of a disaggregated pair.

    By default the decode server has no prefix cache. In some releases the prefill server has no
    graphs.
    """
    with working.deciding(GRAPHS):
        prefill = working.value("disaggregation_mode") == "prefill"
        if prefill and not working.value(GRAPHS) and _without_graphs(working):
            working.set(
                GRAPHS,
                True,
                "the prefill server of a disaggregated pair has no CUDA graphs in this version",
                "sglang 0.5.10 server_args.py:3252, 0.4.6 server_args.py:448",
            )
    with working.deciding(RADIX):
        if working.value("disaggregation_mode") != "decode":
            return
        # applies even if other steps that may switch it off lack facts
        if RADIX not in working.undecided and working.value(RADIX):
            return
        if working.value("disaggregation_decode_enable_radix_cache"):
            return
        working.change(
            ChangeKind.RADIX_CACHE_OFF,
            RADIX,
            True,
            "the decode server of a disaggregated pair caches no prefixes",
            "sglang 0.5.23 arg_groups/pd_disaggregation_hook.py:122, 0.4.6 server_args.py:451",
        )


def resolve_caches(working: Working) -> None:
    """Switch off caches and graphs that the attention backend or deterministic inference
    excludes."""
    _sampling(working)
    _adapters(working)
    with working.deciding(GRAPHS):
        _graphs(working)
    with working.deciding(RADIX, "enable_mixed_chunk"):
        if working.backend("attention_backend") == "dual_chunk_flash_attn":
            why = "not supported by dual_chunk_flash_attn"
            source = "sglang 0.5.10 server_args.py:2460"
            working.set(RADIX, True, why, source)
            if working.value("enable_mixed_chunk"):
                working.set("enable_mixed_chunk", False, why, source)
    with working.deciding(RADIX):
        _deterministic(working)


def _graphs(working: Working) -> None:
    """Switch off all CUDA graphs for backends that run without them (up to 0.5.13; later releases
    have a switch for each phase)."""
    if working.value(GRAPHS) or working.in_versions(BACKENDS_BY_PHASE):
        return
    deepep = working.value("moe_a2a_backend") == "deepep"
    normal = deepep and working.value("deepep_mode") == "normal"
    if normal or working.backend("attention_backend") in EAGER:
        what = "deepep in normal mode" if normal else str(working.value("attention_backend"))
        working.set(
            GRAPHS,
            True,
            f"{what} runs without CUDA graphs",
            "sglang 0.5.10 server_args.py:2301, 0.4.6 server_args.py:321",
        )


def _without_graphs(working: Working) -> bool:
    """True if a prefill server runs without any CUDA graphs in this version."""
    if working.in_versions(">=0.5.16"):
        return False  # decode graphs only
    if working.in_versions(">=0.5.13") or working.in_versions("<0.5.6"):
        return True
    if working.in_versions(">=0.5.10"):
        explicit = working.user_value(PIECEWISE)
        return bool(explicit if working.in_versions(">=0.5.11") else working.value(PIECEWISE))
    return not working.value("enable_piecewise_cuda_graph")


def _sampling(working: Working) -> None:
    name = "sampling_backend"
    with working.deciding(name):
        on_cpu = working.device == "cpu" and working.in_versions(OWN_CPU_DEFAULTS)
        if on_cpu or (attention.is_deterministic(working) and working.in_versions(">=0.5.3")):
            why = "used for sampling on CPUs" if on_cpu else "used for deterministic sampling"
            source = "sglang 0.5.23 arg_groups/platform_hook.py:172, overrides.py:1035"
            working.set(name, "pytorch", why, source)
        elif working.value(name) is None:
            backend = "flashinfer" if working.is_cuda else "pytorch"
            why = "the default on NVIDIA GPUs" if working.is_cuda else "no NVIDIA GPU"
            source = "sglang 0.5.23 arg_groups/overrides.py:1019, 0.5.10 server_args.py:2211"
            working.set(name, backend, why, source)


def _adapters(working: Working) -> None:
    name = "enable_lora"
    with working.deciding(name):
        if (
            working.in_versions(">=0.4.10")
            and working.value("lora_paths")
            and working.value(name) is None
        ):
            why = "lora_paths names adapters"
            working.set(name, True, why, "sglang 0.5.23 arg_groups/lora_hook.py:41")


def _deterministic(working: Working) -> None:
    """Disable the prefix cache unless the backend shares prefixes deterministically (0.5.4 and
    later)."""
    if working.in_versions("<0.5.4") or working.value(RADIX):
        return
    if not attention.is_deterministic(working):
        return
    backend = working.value("attention_backend")
    if backend not in attention.sharing_backends(working):
        working.change(
            ChangeKind.RADIX_CACHE_OFF,
            RADIX,
            True,
            f"{backend} does not share prefixes deterministically",
            "sglang 0.5.23 arg_groups/attention_hook.py:656, 0.5.4 server_args.py:1800",
        )


_WITHOUT_BUFFER = (
    "FalconH1ForCausalLM",
    "JetNemotronForCausalLM",
    "JetVLMForConditionalGeneration",
)
_NO_STATES_CACHED = ("KimiLinearForCausalLM", "BailingMoeV2_5ForCausalLM")


def resolve_hybrid(working: Working) -> None:
    """Set the caching strategy for recurrent states, and switch off features that it excludes."""
    with working.deciding(STRATEGY, OVERLAP, RADIX):
        old = working.in_versions(">=0.5.7") and not working.in_versions(attention.CHOSEN)
        if old and working.value(STRATEGY) == "auto":
            source = "sglang 0.5.10 server_args.py:967"
            working.set(STRATEGY, "no_buffer", "auto means no_buffer in this version", source)
        if working.in_versions("<0.5.9"):
            _by_architecture(working)
            return
        known = working.architectures.hybrid
        if not has_architecture(working, known):
            return
        if not attention.has_states(working.target):
            return
        if working.in_versions(attention.CHOSEN):
            _strategy(working)
        else:
            _without_buffer(working)


def _strategy(working: Working) -> None:
    """Resolve the caching strategy `auto` (`_handle_mamba_radix_cache`, 0.5.14 and later)."""
    if working.value(STRATEGY) != "auto":
        return
    if _has_a_buffer(working):
        why = f"{working.architecture} needs a buffer for the overlap schedule or larger pages"
        source = "sglang 0.5.23 arg_groups/overrides.py:483"
        working.set(STRATEGY, "extra_buffer", why, source)
    elif nemotron_h_verifies_on_trtllm(working):  # the engine sets it first, unconditionally
        why = f"the engine's choice for {working.architecture} on trtllm_mha"
        source = "sglang 0.5.23 arg_groups/model_overrides/nemotron_h.py:136, 0.5.19 :110"
        working.set(STRATEGY, "extra_buffer", why, source)
    elif not working.value(RADIX):
        why = "no feature in use needs a buffer in addition to the state cache"
        working.set(STRATEGY, "no_buffer", why, "sglang 0.5.23 arg_groups/overrides.py:485")
        _overlap_off(working)


def _has_a_buffer(working: Working) -> bool:
    if working.value(RADIX):
        return False
    requested = not working.value(OVERLAP) or (working.value("page_size") or 1) > 1
    able = attention.backend_buffers(working)
    return requested and able and working.architecture in working.architectures.extra_buffer


def _without_buffer(working: Working) -> None:
    """Switch off the prefix cache, or the features that are incompatible with cached states
    (`_handle_mamba_radix_cache`, 0.5.9 to 0.5.13)."""
    if working.architecture in _NO_STATES_CACHED and not (
        working.in_versions(">=0.5.13") and working.architecture == _NO_STATES_CACHED[1]
    ):
        _radix_off(working, "the states of this model are not cached in this version")
        return
    if working.value(STRATEGY) != "no_buffer" or working.value(RADIX):
        return
    if working.in_versions(">=0.5.11") and (working.value("page_size") or 1) != 1:
        why = "states without their own buffer are cached in pages of 1"
        working.set("page_size", 1, why, "sglang 0.5.11 server_args.py:2427")
    if working.user_value("speculative_algorithm") is None:
        if working.value("attention_backend") == "trtllm_mha":
            _without_pages(working, "sglang 0.5.13 server_args.py:2741, 0.5.9 :1759")
        else:
            _overlap_off(working)
    elif working.in_versions("<0.5.10"):
        _radix_off(working, "speculation does not work with cached states in this version")
    elif working.in_versions(attention.AMD_DROPS_CACHE):
        with working.deciding(RADIX):
            if working.is_hip:  # on other GPUs the engine rejects it
                why = "speculation does not work with cached states on AMD GPUs in this version"
                _radix_off(working, why, "sglang 0.5.11 server_args.py:2451")


def _by_architecture(working: Working) -> None:
    """Apply the per-architecture branches of 0.5.4.post2 to 0.5.8 (0.5.8 server_args.py:1411-1594).

    In 0.5.8 the branch for Qwen3-Next was moved to GLM-4.5 (server_args.py:1519), which has no
    recurrent states. Nemotron-H had no reachable branch before 0.5.7.
    """
    if working.value(RADIX):
        return
    if working.in_versions(">=0.5.4.post2") and _is(working, "KimiLinearForCausalLM"):
        _radix_off(working, "the states of this model are not cached in this version")
    elif working.in_versions(">=0.5.5.post2") and _is(working, "Qwen3NextForCausalLM"):
        buffered = working.in_versions(">=0.5.8") or working.value(STRATEGY) == "extra_buffer"
        if not (working.in_versions(">=0.5.6.post1") and _lost_to_trtllm(working)) and not buffered:
            _overlap_off(working)
    elif working.in_versions(">=0.5.8") and _is(working, "Glm4MoeForCausalLM"):
        if working.value(STRATEGY) != "extra_buffer":
            _overlap_off(working)
    elif working.in_versions(">=0.5.6.post1") and _is(working, *_WITHOUT_BUFFER):
        if not (working.in_versions(">=0.5.7") and _lost_to_trtllm(working)):
            _overlap_off(working)
    elif working.in_versions(">=0.5.7") and _is(working, "NemotronHForCausalLM"):
        if (
            working.in_versions(">=0.5.8")
            and working.user_value("speculative_algorithm") is not None
        ):
            _radix_off(working, "speculation does not work with cached states in this version")
        elif not _lost_to_trtllm(working):
            _overlap_off(working)


def _is(working: Working, *architectures: str) -> bool:
    return has_architecture(working, architectures)


def _lost_to_trtllm(working: Working) -> bool:
    """Switch off state caching for trtllm_mha on Blackwell. Return True if switched off."""
    if working.user_value("attention_backend") != "trtllm_mha" or working.capability // 10 != 10:
        return False
    _without_pages(working, "sglang 0.5.8 server_args.py:1518")
    return True


def _without_pages(working: Working, source: str) -> None:
    why = "trtllm_mha does not support pages of 1, which cached states need"
    _radix_off(working, why)
    if working.value(OVERLAP):
        why = f"{why}; without cached states the schedule may overlap"
        working.change(ChangeKind.OVERLAP, OVERLAP, False, why, source)


def _overlap_off(working: Working) -> None:
    if working.value(OVERLAP):
        return
    working.change(
        ChangeKind.OVERLAP,
        OVERLAP,
        True,
        "cached states of linear attention exclude the overlap schedule in this version",
        "sglang 0.5.23 arg_groups/overrides.py:487, 0.5.10 server_args.py:2193, "
        "0.5.7 server_args.py:1434",
    )


def _radix_off(
    working: Working, why: str, source: str = "sglang 0.5.9 server_args.py:1717"
) -> None:
    if not working.value(RADIX):
        working.change(ChangeKind.RADIX_CACHE_OFF, RADIX, True, why, source)
