"""Reads a checkpoint's facts from its directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from speclaunch.facts.checkpoint import SHORT_DTYPES, Checkpoint, PartlyReadCheckpoint
from speclaunch.facts.context import context_lengths
from speclaunch.facts.facts import checkpoint_fact
from speclaunch.facts.origin import Origin, Provenance
from speclaunch.facts.partial_config import PartialConfig, UnreadKeyError, merged
from speclaunch.facts.quantization import (
    quantization,
    quantization_beside,
    quantization_config,
    quantization_config_beside,
)
from speclaunch.facts.unknown import UnknownFact
from speclaunch.reads.safe_json import (
    UnreadableFileError,
    is_file,
    mapping,
    read_object,
    size,
    sizes,
    text,
    texts,
)

_NESTED = ("thinker_config", "llm_config", "language_config", "text_config")
"""In this order: get_hf_text_config of srt/utils/hf_transformers/common.py (0.5.23). Releases up
to 0.5.9 ask in the reverse order; no published config has two of them."""
_MTP_KEYS = (
    "num_nextn_predict_layers",
    "mtp_num_hidden_layers",
    "num_mtp_layers",
    "mtp_num_layers",
    "num_mtp_modules",
)
_EXPERT_KEYS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
_MULTIMODAL_KEYS = ("vision_config", "audio_config", "thinker_config", "visual", "vit_config")
_DTYPES = frozenset({"float16", "bfloat16", "float32", "float64"})


def read_checkpoint(
    name: str, directory: Path, *, tokenizer: bool = False, origin: Origin | None = None
) -> Checkpoint | UnknownFact:
    """The facts of the checkpoint in a directory with a `config.json`.

    With `tokenizer` the vocabulary is read, too (some ten milliseconds). Never raises for what is
    in the files.
    """
    from speclaunch.facts.tensors import read_tensors  # noqa: PLC0415  most come from the index
    from speclaunch.facts.tokenizer import read_vocabulary  # noqa: PLC0415
    from speclaunch.facts.weights import read_weights  # noqa: PLC0415

    try:
        config = read_object(directory / "config.json")
    except UnreadableFileError as error:
        return UnknownFact(checkpoint_fact(name), str(error))
    origin = origin or Origin(Provenance.DIRECTORY, str(directory))
    found = from_config(name, config, directory, origin=origin)
    weights = read_weights(directory)
    vocabulary = read_vocabulary(directory) if tokenizer else None
    return replace(
        found,
        mtp_weights=weights.has_mtp(found.num_hidden_layers),
        has_token_map=weights.has_token_map(),
        has_dspark_folder=is_file(directory / "dspark" / "config.json"),
        weight_bytes=weights.total_bytes,
        missing_files=weights.missing_files,
        tensors=read_tensors(directory),
        tokenizer_size=vocabulary.tokens if vocabulary else None,
        tokenizer_digest=vocabulary.digest if vocabulary else None,
        quantization=found.quantization or quantization_beside(directory),
        quantization_config=found.quantization_config or quantization_config_beside(directory),
    )


def from_config(
    name: str,
    config: Mapping[str, Any],
    path: Path | None = None,
    *,
    in_file: Mapping[str, Any] | None = None,
    **known: Any,
) -> Checkpoint:
    """What a `config.json` says; every value of a wrong type counts as missing.

    `known`: fields of the checkpoint that are told elsewhere. `in_file`: the config before it was
    changed, where it was. A field for which a PartialConfig lacks a key is unread.
    """
    inner = _text_config(dict(config.items()))  # a part that nobody read is listed key by key
    flat = merged(config, inner)
    readers: dict[str, Callable[[], Any]] = {
        "architectures": lambda: texts(config.get("architectures")),
        "model_type": lambda: text(config.get("model_type")),
        "dtype": lambda: _dtype(config, inner),
        "context_length": lambda: _context(flat, inner, in_file)[0],
        "context_lengths": lambda: _context(flat, inner, in_file)[1],
        "hidden_size": lambda: size(flat.get("hidden_size")) or size(flat.get("n_embd")),
        "vocab_size": lambda: size(flat.get("vocab_size")),
        "draft_vocab_size": lambda: size(flat.get("draft_vocab_size")),
        "num_hidden_layers": lambda: (
            size(flat.get("num_hidden_layers")) or size(flat.get("n_layer"))
        ),
        "num_attention_heads": lambda: (
            size(flat.get("num_attention_heads")) or size(flat.get("n_head"))
        ),
        "num_key_value_heads": lambda: size(flat.get("num_key_value_heads")),
        "head_dim": lambda: size(flat.get("head_dim")),
        "kv_lora_rank": lambda: size(flat.get("kv_lora_rank")),
        "sliding_window": lambda: _sliding_window(flat),
        "quantization": lambda: quantization(config, inner),
        "mtp_layers": lambda: _mtp_layers(flat),
        "target_hidden_size": lambda: size(flat.get("target_hidden_size")),
        "aux_hidden_layers": lambda: _aux_hidden_layers(flat),
        "use_aux_hidden_state": lambda: _switch(
            mapping(flat.get("eagle_config")).get("use_aux_hidden_state")
        ),
        "block_size": lambda: _block_size(flat),
        "is_moe": lambda: _is_moe(flat) if texts(config.get("architectures")) else None,
        "is_multimodal": lambda: any(config.get(key) is not None for key in _MULTIMODAL_KEYS),
        "quantization_config": lambda: quantization_config(config, inner),
    }
    fields: dict[str, Any] = {}
    unread: dict[str, str] = {}
    for field, read in readers.items():
        try:
            fields[field] = read()
        except UnreadKeyError as error:
            unread[field] = error.key
    fields |= known
    unread = {field: key for field, key in unread.items() if field not in known}
    kind = PartlyReadCheckpoint if unread else Checkpoint
    return kind(name, path, **fields, config=flat, raw=config, unread=unread)


def _context(
    flat: Mapping[str, Any], inner: Mapping[str, Any], in_file: Mapping[str, Any] | None
) -> tuple[int | None, tuple[int | None, int | None] | None]:
    """The context length in every release, or the two that differ."""
    # the text model's own config alone, without what it would inherit from the outer one
    own = inner or flat
    if inner and isinstance(flat, PartialConfig):
        own = PartialConfig(flat.name, inner, flat.unread)
    before = None
    if in_file is not None:
        before = (_text_config(dict(in_file.items())) if inner else None) or in_file
    early, late = context_lengths(own, before)
    return (late, None) if early == late else (None, (early, late))


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part that describes the language model; empty where it is the whole."""
    if _is_early_llava(config):
        return {}  # these keep everything outside, and the part inside is another's
    for key in _NESTED:
        inner = mapping(_read(config, key))
        if inner:
            own = mapping(inner.get("text_config")) if key == "thinker_config" else {}
            return own or inner
    return {}


def _read(config: Mapping[str, Any], key: str) -> Any:
    """A key that tells where others stand; None, too, where nobody read it. A key for which that
    matters is unread itself."""
    unread = isinstance(config, PartialConfig) and key in config.unread
    return None if unread else config.get(key)


def _is_early_llava(config: Mapping[str, Any]) -> bool:
    first = next(iter(texts(_read(config, "architectures"))), "")
    return first.startswith("Llava") and first.endswith("ForCausalLM")


def _dtype(config: Mapping[str, Any], inner: Mapping[str, Any]) -> str | None:
    if _is_early_llava(config):
        return "float16"  # whatever it says: get_hf_text_config sets it
    thinker = mapping(config.get("thinker_config"))  # its own counts, not its text_config's
    for part in (thinker or inner, config):
        said = text(part.get("dtype")) or text(part.get("torch_dtype"))
        if said is not None:
            name = said.removeprefix("torch.").lower()
            name = SHORT_DTYPES.get(name, name)
            return name if name in _DTYPES else None
    return None


def _sliding_window(config: Mapping[str, Any]) -> int | None:
    """None where the window is declared and not used: Qwen uses it only when it is told to."""
    used = config.get("use_sliding_window")
    qwen = (text(config.get("model_type")) or "").startswith(("qwen2", "qwen3"))
    if used is False or (qwen and used is not True):
        return None
    return size(config.get("sliding_window"))


def _mtp_layers(config: Mapping[str, Any]) -> int | None:
    said = [size(config.get(key), least=0) for key in _MTP_KEYS]
    said.append(size(mapping(config.get("mtp_config")).get("n_layers"), least=0))
    return next((layers for layers in said if layers is not None), None)


def _aux_hidden_layers(config: Mapping[str, Any]) -> tuple[int, ...]:
    """EAGLE-3 says them in `eagle_config` (spec_aux_hidden_state.py), DFLASH in `dflash_config`,
    else outside of it (parse_dflash_draft_config), DSPARK by a name of its own before that."""
    dflash = merged(config, mapping(config.get("dflash_config")))
    return (
        sizes(config.get("dspark_target_layer_ids"))
        or sizes(dflash.get("target_layer_ids"))
        or sizes(mapping(config.get("eagle_config")).get("eagle_aux_hidden_state_layer_ids"))
        or sizes(config.get("eagle_aux_hidden_state_layer_ids"))
    )


def _block_size(config: Mapping[str, Any]) -> int | None:
    """`dflash_config` goes before the outer key, also where it says null."""
    return size(merged(config, mapping(config.get("dflash_config"))).get("block_size"))


def _is_moe(config: Mapping[str, Any]) -> bool:
    for key in _EXPERT_KEYS:
        value = config.get(key)
        counts = sizes(value) if isinstance(value, list) else (size(value) or 0,)
        if any(count > 1 for count in counts):
            return True
    return False


def _switch(value: object) -> bool | None:
    return value if isinstance(value, bool) else None
