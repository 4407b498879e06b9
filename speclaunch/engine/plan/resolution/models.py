"""Predicates for kinds of models, and resolution of the settings from the target's config: context
length and data type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speclaunch.engine.facts.checkpoint import SHORT_DTYPES
from speclaunch.engine.plan.plan import UnknownValueError
from speclaunch.engine.plan.resolution.working import Working
from speclaunch.engine.plan.topics.attention import BACKENDS
from speclaunch.engine.plan.topics.target import halved

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
    """True for a text model whose config is nested in another config, which also makes it
    multimodal (0.5.10 and later)."""
    target = working.target
    if target.config:
        return any(isinstance(target.config.get(key), dict) for key in _NESTED[:-1])
    return target.is_multimodal


def of_config(working: Working, name: str) -> Any:
    """Return the value of a key in the target's config. Raises UnknownValueError if there is no
    config."""
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
"""Architectures with separate defaults (0.5.19 arg_groups/model_overrides/nemotron_h.py:20; the
last one from 0.5.20)."""


def nemotron_h_has_defaults(working: Working) -> bool:
    """True if the engine chooses the backends for Nemotron-H with speculation: on Blackwell, if the
    user sets none for the target.

    0.5.23 arg_groups/model_overrides/nemotron_h.py:125, 0.5.19 :99.
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
    """True if the engine chooses trtllm_mha with pages of 64 and a state buffer for Nemotron-H: for
    a chain on SM100.

    0.5.23 arg_groups/model_overrides/nemotron_h.py:128, 0.5.19 :102.
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
"""Models with Kimi's linear attention, for targets whose config is unknown."""


CONTEXT = "context_length"
DTYPE = "dtype"
_EMBEDDING_LIMIT = 8192
_IN_BFLOAT16 = (
    "GptOssForCausalLM",
    "MistralLarge3ForCausalLM",
    "PixtralForConditionalGeneration",
)


def resolve_model_defaults(working: Working) -> None:
    """Set the effective context length and data type, as `ModelConfig` does.

    A value remains unchanged if a fact that determines it is missing.
    """
    with working.deciding(CONTEXT):
        if working.user_value(CONTEXT) is None:
            _context(working)
    with working.deciding(DTYPE):
        _dtype(working)


def _context(working: Working) -> None:
    """Set the context length the model was trained for (`_derive_context_length`)."""
    own = working.target.context_in(working.plan.request.version)
    if own is None:
        return
    why = f"{own} tokens, derived from the target's config"
    if working.architecture == "EmbeddingGemma2Model" and own > _EMBEDDING_LIMIT:
        own, why = _EMBEDDING_LIMIT, f"{_EMBEDDING_LIMIT} tokens, the limit of EmbeddingGemma 2"
    source = "sglang 0.5.23 configs/model_config.py:1291, 0.4.6 configs/model_config.py:127"
    working.set(CONTEXT, own, why, source)


def dtype_of_both(working: Working) -> str | None:
    """Return the data type that the engine forces on target and draft; None if it forces none.

    It overrides the user and both configs, for GPT-OSS in mxfp4 (0.5.1 and later), Mistral Large 3
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
    """Set the config's dtype, with float32 replaced by a 16-bit type (`_get_and_verify_dtype`)."""
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
