"""What `json_model_override_args` makes of a checkpoint's config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.facts.read_checkpoint import from_config
from speclaunch.facts.safe_json import mapping

_MERGED = ("rope_scaling", "rope_parameters")


def overridden(found: Checkpoint, changes: Mapping[str, Any]) -> Checkpoint:
    """The facts of a checkpoint whose config is updated; those of its files stay.

    As `get_config` of srt/utils/hf_transformers/config.py:405 does it (0.5.23): a part of the
    config (`text_config`) and the scaling of positions are updated, anything else is replaced.
    """
    config = dict(found.raw)
    for key, value in changes.items():
        old = config.get(key)
        merges = isinstance(value, Mapping) and isinstance(old, Mapping)
        if merges and (key in _MERGED or key.endswith("_config")):
            config[key] = {**mapping(old), **value}
        else:
            config[key] = value
    said = from_config(found.name, config, found.path)
    return replace(
        said,
        quantization=said.quantization or found.quantization,
        quantization_config=said.quantization_config or found.quantization_config,
        mtp_weights=found.mtp_weights,
        has_token_map=found.has_token_map,
        has_dspark_folder=found.has_dspark_folder,
        tokenizer_size=found.tokenizer_size,
        tokenizer_digest=found.tokenizer_digest,
        weight_bytes=found.weight_bytes,
        missing_files=found.missing_files,
        gated=found.gated,
    )
