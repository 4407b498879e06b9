"""Reads a checkpoint's facts from its directory, and applies `json_model_override_args`.

A checkpoint's quantization is named as in the newest engine: `_parse_quant_hf_config` and
`_parse_modelopt_quant_config` in srt/configs/model_config.py (0.5.23). Releases up to 0.5.2 name
all of NVIDIA's ModelOpt methods `modelopt`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from speclaunch.core import (
    UnreadableFileError,
    is_file,
    mapping,
    read_object,
    size,
    sizes,
    text,
    texts,
)
from speclaunch.engine.facts.facts import (
    SHORT_DTYPES,
    Checkpoint,
    FactSource,
    Origin,
    PartialConfig,
    PartlyReadCheckpoint,
    UnknownFact,
    UnreadKeyError,
    checkpoint_fact,
    merged,
)

_KEYS = (
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_position_embeddings",
)
"""Config keys of the context length, in SGLang's order (CONTEXT_LENGTH_KEYS near
get_context_length). `get_context_length` (srt/utils/hf_transformers/common.py) is the same in every
release from 0.4.6 to 0.5.23, but its input, the config that `transformers` returns, differs.
Transformers 5 (SGLang 0.5.10 and later) also reads rope scaling from `rope_parameters`, and fills
in `original_max_position_embeddings`; the engine then ignores the scaling factor."""
_FILLED_IN = frozenset({"llama3", "yarn", "longrope"})
"""Scaling types for which transformers 5 adds `original_max_position_embeddings`
(modeling_rope_utils.py)."""
_BY_LAYER = frozenset({"gemma3_text", "gemma3n_text"})
"""Models for which transformers 5 stores scaling per layer type. The engine does not read it."""
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
"""`max_position_embeddings` of the config classes, used if a config lacks it. The defaults are
equal in transformers 4.51 to 5.19. A Llama draft that omits the key is limited to 2048 tokens, even
for a long-context target."""


def context_lengths(
    config: Mapping[str, Any], in_file: Mapping[str, Any] | None = None
) -> tuple[int | None, int | None]:
    """Return a text model's context lengths: before 0.5.10, and in 0.5.10 and later.

    A length is None if the config lacks it, or states it in a format on which the engine fails.

    `in_file`: the original config, if `json_model_override_args` changes it. Transformers 5
    completes only the config in the file, not the engine's later changes (0.5.23
    srt/utils/hf_transformers/config.py:405).
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
    if _KEYS[-1] in config:  # it is null
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


QUANTIZATION_FILE = "hf_quant_config.json"
"""Name of ModelOpt's quantization file, used if config.json has no quantization object."""


def quantization(*configs: Mapping[str, Any]) -> str | None:
    """Return the first config's quantization method (`quant_method` or ModelOpt's) that is set."""
    for config in configs:
        for key in ("quantization_config", "compression_config"):
            found = mapping(config.get(key))
            method = (text(found.get("quant_method")) or "").lower()
            if method in ("", "modelopt"):
                method = quantization_in(found) or method
            if method:
                return method
    return None


def quantization_config(*configs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the quantization object of the first config that has one; empty if none does."""
    for config in configs:
        for key in ("quantization_config", "compression_config"):
            found = mapping(config.get(key))
            if found:
                return found
    return {}


def quantization_config_in(file: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the quantization object in the content of ModelOpt's file; empty if there is none."""
    return mapping(file.get("quantization")) or file


def _read_quantization_file(directory: Path) -> Mapping[str, Any]:
    if not is_file(directory / QUANTIZATION_FILE):
        return {}
    try:
        return read_object(directory / QUANTIZATION_FILE)
    except UnreadableFileError:
        return {}


def quantization_in(file: Mapping[str, Any]) -> str | None:
    """Return the quantization method in the content of ModelOpt's file; None if there is none."""
    outer = quantization_config_in(file)
    inner = mapping(outer.get("quantization")) or outer
    algorithm = text(inner.get("quant_algo"))
    if algorithm is None:
        return None
    if algorithm == "MIXED_PRECISION":
        layers = mapping(inner.get("quantized_layers")).values()
        algorithms = {(text(mapping(layer).get("quant_algo")) or "").upper() for layer in layers}
        return "modelopt_mixed" if algorithms & {"NVFP4", "W4A16_NVFP4"} else "w4afp8"
    if "FP4" in algorithm:
        return "modelopt_fp4"
    return {"FP8": "modelopt_fp8", "MXFP8": "mxfp8"}.get(algorithm, "modelopt")


_NESTED = ("thinker_config", "llm_config", "language_config", "text_config")
"""Keys of nested configs, in the order of get_hf_text_config (0.5.23
srt/utils/hf_transformers/common.py). Releases up to 0.5.9 use the reverse order; no published
config has two of them."""
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
    """Return the facts of the checkpoint in a directory, or why its `config.json` is unreadable.

    `tokenizer`: also read the vocabulary, which takes tens of milliseconds. Never raises because of
    file contents.
    """
    from speclaunch.engine.facts.tensors import read_tensors  # noqa: PLC0415  most come from the index
    from speclaunch.engine.facts.weight_files import read_vocabulary, read_weights  # noqa: PLC0415

    try:
        config = read_object(directory / "config.json")
    except UnreadableFileError as error:
        return UnknownFact(checkpoint_fact(name), str(error))
    origin = origin or Origin(FactSource.DIRECTORY, str(directory))
    found = from_config(name, config, directory, origin=origin)
    modelopt_file = {} if found.quantization else _read_quantization_file(directory)
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
        quantization=found.quantization or quantization_in(modelopt_file),
        quantization_config=found.quantization_config or quantization_config_in(modelopt_file),
    )


def from_config(
    name: str,
    config: Mapping[str, Any],
    path: Path | None = None,
    *,
    in_file: Mapping[str, Any] | None = None,
    **known: Any,
) -> Checkpoint:
    """Return the facts in a `config.json`. A value of the wrong type counts as missing.

    `known`: fields of the checkpoint from other sources. `in_file`: the config before overrides, if
    any. A field is unread if a PartialConfig lacks one of its keys.
    """
    inner = _text_config(dict(config.items()))  # an unread part is listed key by key
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
        "use_aux_hidden_state": lambda: switch(
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
    """Return the context length and None if all releases agree, else None and both lengths."""
    # only the text model's own config, without keys inherited from the outer config
    own = inner or flat
    if inner and isinstance(flat, PartialConfig):
        own = PartialConfig(flat.name, inner, flat.unread)
    before = None
    if in_file is not None:
        before = (_text_config(dict(in_file.items())) if inner else None) or in_file
    early, late = context_lengths(own, before)
    return (late, None) if early == late else (None, (early, late))


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the nested config of the language model; empty if the top level describes it."""
    if _is_early_llava(config):
        return {}  # all keys are at the top level; the nested part is a different model
    for key in _NESTED:
        inner = mapping(_read(config, key))
        if inner:
            own = mapping(inner.get("text_config")) if key == "thinker_config" else {}
            return own or inner
    return {}


def _read(config: Mapping[str, Any], key: str) -> Any:
    """Return the value of a key that determines where other keys are; None if it is unread.

    Fields that depend on those keys are then unread, too.
    """
    unread = isinstance(config, PartialConfig) and key in config.unread
    return None if unread else config.get(key)


def _is_early_llava(config: Mapping[str, Any]) -> bool:
    first = next(iter(texts(_read(config, "architectures"))), "")
    return first.startswith("Llava") and first.endswith("ForCausalLM")


def _dtype(config: Mapping[str, Any], inner: Mapping[str, Any]) -> str | None:
    if _is_early_llava(config):
        return "float16"  # get_hf_text_config overrides it
    thinker = mapping(config.get("thinker_config"))  # its own value, not its text_config's
    for part in (thinker or inner, config):
        value = text(part.get("dtype")) or text(part.get("torch_dtype"))
        if value is not None:
            name = value.removeprefix("torch.").lower()
            name = SHORT_DTYPES.get(name, name)
            return name if name in _DTYPES else None
    return None


def _sliding_window(config: Mapping[str, Any]) -> int | None:
    """Return the sliding window in tokens; None if unused. Qwen requires `use_sliding_window`."""
    used = config.get("use_sliding_window")
    qwen = (text(config.get("model_type")) or "").startswith(("qwen2", "qwen3"))
    if used is False or (qwen and used is not True):
        return None
    return size(config.get("sliding_window"))


def _mtp_layers(config: Mapping[str, Any]) -> int | None:
    counts = [size(config.get(key), least=0) for key in _MTP_KEYS]
    counts.append(size(mapping(config.get("mtp_config")).get("n_layers"), least=0))
    return next((layers for layers in counts if layers is not None), None)


def _aux_hidden_layers(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the target layers whose hidden states a draft reads.

    EAGLE-3 lists them in `eagle_config` (spec_aux_hidden_state.py). DFLASH lists them in
    `dflash_config`, else at the top level (parse_dflash_draft_config). DSPARK's own key takes
    precedence over both.
    """
    dflash = merged(config, mapping(config.get("dflash_config")))
    return (
        sizes(config.get("dspark_target_layer_ids"))
        or sizes(dflash.get("target_layer_ids"))
        or sizes(mapping(config.get("eagle_config")).get("eagle_aux_hidden_state_layer_ids"))
        or sizes(config.get("eagle_aux_hidden_state_layer_ids"))
    )


def _block_size(config: Mapping[str, Any]) -> int | None:
    """Return the block size, if any. A value in `dflash_config` takes precedence, even null."""
    return size(merged(config, mapping(config.get("dflash_config"))).get("block_size"))


def _is_moe(config: Mapping[str, Any]) -> bool:
    for key in _EXPERT_KEYS:
        value = config.get(key)
        counts = sizes(value) if isinstance(value, list) else (size(value) or 0,)
        if any(count > 1 for count in counts):
            return True
    return False


def switch(value: object) -> bool | None:
    """Return the value if it is a boolean, else None."""
    return value if isinstance(value, bool) else None


_MERGED = ("rope_scaling", "rope_parameters")
_OF_FILES = (
    "mtp_weights",
    "has_token_map",
    "has_dspark_folder",
    "tokenizer_size",
    "tokenizer_digest",
    "weight_bytes",
    "weights_rounded",
    "missing_files",
    "tensors",
    "gated",
    "origin",
)
_OF_QUANTIZATION = ("quantization", "quantization_config")


def overridden(found: Checkpoint, changes: Mapping[str, Any]) -> Checkpoint:
    """Return the facts of a checkpoint after a config update. Facts from other files remain.

    Like `get_config` (0.5.23 srt/utils/hf_transformers/config.py:405), merges nested configs
    (`text_config`) and rope scaling, and replaces other values.
    """
    config = dict(found.raw.items())
    for key, value in changes.items():
        old = config.get(key)
        merges = isinstance(value, Mapping) and isinstance(old, Mapping)
        if merges and (key in _MERGED or key.endswith("_config")):
            config[key] = {**mapping(old), **value}
        else:
            config[key] = value
    known = {name: found.field_or_none(name) for name in _OF_FILES}
    updated = merged(found.raw, config)
    changed = from_config(found.name, updated, found.path, in_file=found.raw, **known)
    if (
        changed.field_or_none("quantization") is None
        and found.field_or_none("quantization") is not None
    ):
        from_file = {name: found.field_or_none(name) for name in _OF_QUANTIZATION}
        return from_config(found.name, updated, found.path, in_file=found.raw, **known, **from_file)
    return changed
