"""How many tokens a model was made for, as the engine derives it from its config.

`get_context_length` (srt/utils/hf_transformers/common.py) reads the same in every release from
0.4.6 to 0.5.23. What it reads does not: it sees the config after `transformers`, and version 5 of
that (SGLang 0.5.10 and later) takes the scaling from `rope_parameters` as well, and fills in
`original_max_position_embeddings`, with which a factor no longer counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speclaunch.reads.safe_json import mapping, size, text

_KEYS = (
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_position_embeddings",
)
"""In this order: CONTEXT_LENGTH_KEYS beside get_context_length."""
_FILLED_IN = frozenset({"llama3", "yarn", "longrope"})
"""The scalings to which transformers 5 adds the original length (modeling_rope_utils.py)."""
_BY_LAYER = frozenset({"gemma3_text", "gemma3n_text"})
"""Their scaling is kept for each kind of layer by transformers 5, where nobody looks for it."""
_DEFAULTS = {
    "cohere2": 8192,
    "deepseek_v2": 2048,
    "deepseek_v3": 4096,
    "ernie4_5": 131072,
    "ernie4_5_moe": 131072,
    "gemma": 8192,
    "gemma2": 8192,
    "gemma3_text": 131072,
    "glm4": 131072,
    "glm4_moe": 131072,
    "glm4_moe_lite": 202752,
    "glm_moe_dsa": 202752,
    "granite": 2048,
    "llama": 2048,
    "llama4_text": 131072,
    "mistral": 131072,
    "mixtral": 131072,
    "phi3": 4096,
    "qwen2": 32768,
    "qwen2_moe": 32768,
    "qwen3": 32768,
    "qwen3_moe": 32768,
    "qwen3_next": 32768,
    "qwen3_5_text": 32768,
    "qwen3_5_moe_text": 32768,
}
"""`max_position_embeddings` of the config classes, for a config that does not say it. The same
from transformers 4.51 to 5.19. A draft for a long target that leaves it out is a draft of 2048."""


def context_lengths(
    config: Mapping[str, Any], in_file: Mapping[str, Any] | None = None
) -> tuple[int | None, int | None]:
    """What an engine before 0.5.10 and one from then on derive from a text model's config.

    `in_file`: the config as its file has it, where `json_model_override_args` changed it since:
    transformers 5 fills in what it reads, not what the engine puts in afterwards (0.5.23
    srt/utils/hf_transformers/config.py:405). None where the config does not say the length, or
    says it so that the engine stumbles.
    """
    length = _length(config)
    if length is None:
        return None, None
    scaling, newer = mapping(config.get("rope_scaling")), _newer(config)
    filled_in = _kind(newer if in_file is None else _newer(in_file)) in _FILLED_IN
    unscaled = filled_in or text(config.get("model_type")) in _BY_LAYER
    return _scaled(length, scaling), length if unscaled else _scaled(length, newer)


def _newer(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(config.get("rope_scaling")) or mapping(config.get("rope_parameters"))


def _length(config: Mapping[str, Any]) -> int | None:
    for key in _KEYS:
        if config.get(key) is not None:
            return size(config[key])
    if _KEYS[-1] in config:  # it says null
        return None
    return _DEFAULTS.get(text(config.get("model_type")) or "")


def _scaled(length: int, scaling: Mapping[str, Any]) -> int | None:
    own_limit = "original_max_position_embeddings" in scaling
    if own_limit or "factor" not in scaling or _kind(scaling) == "llama3":
        return length
    factor = scaling["factor"]
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < 1e6:
        return None
    return size(int(length * factor))


def _kind(scaling: Mapping[str, Any]) -> str | None:
    return text(scaling.get("rope_type")) or text(scaling.get("type"))
