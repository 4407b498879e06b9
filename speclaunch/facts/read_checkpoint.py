"""Reads a checkpoint's facts from its directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.facts.facts import UnknownFact
from speclaunch.facts.safe_json import (
    UnreadableError,
    mapping,
    read_object,
    size,
    sizes,
    text,
    texts,
)
from speclaunch.facts.tokenizer import read_vocabulary
from speclaunch.facts.weights import read_weights

_CONTEXT_KEYS = (
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_position_embeddings",
)
"""In this order: CONTEXT_LENGTH_KEYS of srt/utils/hf_transformers/common.py (0.5.23)."""
_NESTED = ("thinker_config", "llm_config", "language_config", "text_config")
"""In this order: get_hf_text_config in the same file."""
_MTP_KEYS = (
    "num_nextn_predict_layers",
    "mtp_num_hidden_layers",
    "num_mtp_layers",
    "mtp_num_layers",
    "num_mtp_modules",
)
_DTYPES = frozenset({"float16", "bfloat16", "float32", "float64"})
_SHORT = {"half": "float16", "float": "float32"}


def read_checkpoint(
    name: str, directory: Path, *, tokenizer: bool = False
) -> Checkpoint | UnknownFact:
    """The facts of the checkpoint in a directory with a `config.json`.

    With `tokenizer` the vocabulary is read, too (some ten milliseconds). Never raises for what is
    in the files.
    """
    try:
        config = read_object(directory / "config.json")
    except UnreadableError as error:
        return UnknownFact(f"the checkpoint {name}", str(error))
    found = from_config(name, config, directory)
    weights = read_weights(directory)
    vocabulary = read_vocabulary(directory) if tokenizer else None
    return replace(
        found,
        mtp_weights=weights.has_mtp(found.num_hidden_layers),
        has_token_map=weights.has_token_map(),
        weight_bytes=weights.total_bytes,
        missing_files=weights.missing_files,
        tokenizer_size=vocabulary.tokens if vocabulary else None,
        tokenizer_digest=vocabulary.digest if vocabulary else None,
        quantization=found.quantization or _modelopt(directory),
    )


def from_config(name: str, config: Mapping[str, Any], path: Path | None = None) -> Checkpoint:
    """What a `config.json` says; every value of a wrong type counts as missing."""
    inner = _text_config(config)
    flat = {**config, **inner}
    architectures = texts(config.get("architectures"))
    eagle = mapping(flat.get("eagle_config"))
    dflash = mapping(flat.get("dflash_config"))
    return Checkpoint(
        name,
        path,
        architectures,
        text(config.get("model_type")),
        _dtype(inner) or _dtype(config),
        _context_length(inner or config, config),
        size(flat.get("hidden_size")) or size(flat.get("n_embd")),
        size(flat.get("vocab_size")),
        size(flat.get("draft_vocab_size")),
        size(flat.get("num_hidden_layers")) or size(flat.get("n_layer")),
        size(flat.get("num_attention_heads")) or size(flat.get("n_head")),
        size(flat.get("num_key_value_heads")),
        size(flat.get("head_dim")),
        size(flat.get("kv_lora_rank")),
        _sliding_window(flat),
        _quantization(config) or _quantization(inner),
        next((n for n in (size(flat.get(key), 0) for key in _MTP_KEYS) if n is not None), None),
        target_hidden_size=size(flat.get("target_hidden_size")),
        aux_hidden_layers=sizes(eagle.get("eagle_aux_hidden_state_layer_ids"))
        or sizes(dflash.get("target_layer_ids")),
        block_size=size(flat.get("block_size")) or size(dflash.get("block_size")),
        is_moe=_is_moe(flat) if architectures else None,
        is_multimodal=any(key in config for key in ("vision_config", "audio_config", *_NESTED[:1])),
        config=flat,
    )


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    for key in _NESTED:
        inner = mapping(config.get(key))
        if inner:
            return mapping(inner.get("text_config")) or inner
    return {}


def _dtype(config: Mapping[str, Any]) -> str | None:
    said = text(config.get("dtype")) or text(config.get("torch_dtype"))
    if said is None:
        return None
    name = said.removeprefix("torch.").lower()
    name = _SHORT.get(name, name)
    return name if name in _DTYPES else None


def _context_length(config: Mapping[str, Any], outer: Mapping[str, Any]) -> int | None:
    """Tokens; as get_context_length computes it, but None where no key says it."""
    length = next(
        (n for n in (size(config.get(key)) for key in _CONTEXT_KEYS) if n is not None), None
    )
    if length is None:
        return None if config is outer else _context_length(outer, outer)
    scaling = mapping(config.get("rope_scaling"))
    factor = scaling.get("factor", 1)
    own_limit = "original_max_position_embeddings" in scaling
    if own_limit or scaling.get("rope_type") == "llama3":
        return length
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < 1e6:
        return length if not scaling or "factor" not in scaling else None
    return size(int(length * factor))


def _sliding_window(config: Mapping[str, Any]) -> int | None:
    """None where the window is declared and not used (Qwen2's `use_sliding_window: false`)."""
    if config.get("use_sliding_window") is False:
        return None
    return size(config.get("sliding_window"))


def _quantization(config: Mapping[str, Any]) -> str | None:
    for key in ("quantization_config", "compression_config"):
        found = mapping(config.get(key))
        method = text(found.get("quant_method"))
        if method is not None:
            return method.lower()
    return None


def _modelopt(directory: Path) -> str | None:
    """NVIDIA's ModelOpt keeps the method in a file of its own."""
    if not (directory / "hf_quant_config.json").is_file():
        return None
    try:
        found = mapping(read_object(directory / "hf_quant_config.json").get("quantization"))
    except UnreadableError:
        return None
    return "modelopt" if text(found.get("quant_algo")) else None


def _is_moe(config: Mapping[str, Any]) -> bool:
    keys = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
    return any((size(config.get(key)) or 0) > 1 for key in keys)
