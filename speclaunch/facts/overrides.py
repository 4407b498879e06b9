"""What `json_model_override_args` makes of a checkpoint's config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.facts.partial_config import merged
from speclaunch.facts.read_checkpoint import from_config
from speclaunch.reads.safe_json import mapping

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
_QUANTIZATION = ("quantization", "quantization_config")


def overridden(found: Checkpoint, changes: Mapping[str, Any]) -> Checkpoint:
    """The facts of a checkpoint whose config is updated; those of its files stay.

    As `get_config` of srt/utils/hf_transformers/config.py:405 does it (0.5.23): a part of the
    config (`text_config`) and the scaling of positions are updated, anything else is replaced.
    """
    config = dict(found.raw.items())
    for key, value in changes.items():
        old = config.get(key)
        merges = isinstance(value, Mapping) and isinstance(old, Mapping)
        if merges and (key in _MERGED or key.endswith("_config")):
            config[key] = {**mapping(old), **value}
        else:
            config[key] = value
    known = {name: found.told(name) for name in _OF_FILES}
    updated = merged(found.raw, config)
    said = from_config(found.name, updated, found.path, in_file=found.raw, **known)
    if said.told("quantization") is None and found.told("quantization") is not None:
        beside = {name: found.told(name) for name in _QUANTIZATION}
        return from_config(found.name, updated, found.path, in_file=found.raw, **known, **beside)
    return said
