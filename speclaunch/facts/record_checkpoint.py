"""The facts of a checkpoint as a file keeps them, from a directory that holds its files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from speclaunch.facts import quantization
from speclaunch.facts.checkpoint_file import CheckpointFile
from speclaunch.facts.kept_tensors import described
from speclaunch.facts.partial_config import PartialConfig
from speclaunch.facts.read_checkpoint import from_config
from speclaunch.facts.safetensors_header import TensorHeader, read_header
from speclaunch.facts.tensors import must_be_inside
from speclaunch.facts.tokenizer import read_vocabulary
from speclaunch.facts.weights import INDEX, loaded_files, read_weights
from speclaunch.patterns import lazy
from speclaunch.reads.safe_json import UnreadableFileError, is_file, read_object

_NEEDLESS = lazy(
    r"_name_or_path|_commit_hash|id2label|label2id|task_specific_params|bad_words_ids"
    r"|generation_config|pruned_heads|finetuning_task"
)
"""Keys that no rule reads, and that are long, or name somebody's machine."""
_SECRET = lazy(
    r"(?:^|_)(?:(?:api|access|auth|hub|hf|secret|private|bearer)_?(?:key|token)|secret"
    r"|password|passwd|credentials?)$",
    re.IGNORECASE,
)
"""Keys of secrets, and not `mask_token`."""
_TOKEN = lazy(r"\b(?:hf|gh[a-z]|sk|glpat)[_-][A-Za-z0-9_-]{16,}")
"""How access tokens of the hub and of others begin, wherever they stand."""
_MOST_DEPTH = 50
MOST_HEADERS = 4
"""Weight files whose headers are kept; a checkpoint of more says its tensors in its index."""


def recorded(
    directory: Path,
    name: str,
    *,
    source: str,
    read: str,
    revision: str | None = None,
    tensors: Mapping[str, TensorHeader] | None = None,
) -> CheckpointFile:
    """What a directory says of the checkpoint called `name`: no weights, no secrets, no paths.

    `read`: the day, YYYY-MM-DD; `tensors`: what their headers say, where the files are elsewhere.
    Raises UnreadableFileError.
    """
    config = read_object(directory / "config.json")
    kept, left = publishable(config)
    beside: Mapping[str, Any] = {}
    if is_file(directory / quantization.FILE):
        beside, hidden = publishable(read_object(directory / quantization.FILE))
        if hidden:
            raise UnreadableFileError(f"{quantization.FILE} names a path or a secret")
    weights = read_weights(directory)
    if tensors and weights.names is None:
        weights = replace(weights, names=frozenset(tensors))
    vocabulary = read_vocabulary(directory)
    layers = from_config(name, PartialConfig(name, kept, left)).told("num_hidden_layers")
    return CheckpointFile(
        name,
        "disk",
        source,
        read,
        kept,
        tuple(sorted(left)),
        confidence="high",
        revision=revision,
        quantization_file=beside,
        weight_bytes=weights.total_bytes,
        weights_exact=weights.total_bytes is not None,
        weights_source=_source(directory) if weights.total_bytes is not None else None,
        mtp_weights=weights.has_mtp(layers),
        has_token_map=weights.has_token_map(),
        tokenizer_size=vocabulary.tokens if vocabulary else None,
        tokenizer_digest=vocabulary.digest if vocabulary else None,
        tensors=described(tensors_in(directory) if tensors is None else tensors),
    )


def publishable(config: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """A config without what is none of a reader's business, and the keys that are left out.

    Left out are secrets, absolute paths and addresses, and what is long and read by nobody. They
    were there, so that asking for one is unknown. Raises UnreadableFileError.
    """
    left: set[str] = set()
    kept: dict[str, Any] = _without(config, left, 0)
    return kept, left


def _without(value: Any, left: set[str], depth: int) -> Any:
    if depth > _MOST_DEPTH:
        raise UnreadableFileError(f"config.json is nested deeper than {_MOST_DEPTH}")
    if isinstance(value, dict):
        found = {}
        for key, inner in value.items():
            if _NEEDLESS.fullmatch(key) or _is_private(key, inner):
                left.add(key)
            else:
                found[key] = _without(inner, left, depth + 1)
        return found
    if isinstance(value, list):
        return [_without(inner, left, depth + 1) for inner in value]
    return value


def _is_private(key: str, value: object) -> bool:
    said = value if isinstance(value, list) else [value]
    told = [one for one in said if isinstance(one, str)]
    if _SECRET.search(key) and any(told):
        return True
    return any(_is_place(one) or _TOKEN.search(one) for one in told)


def _is_place(told: str) -> bool:
    return told.startswith(("/", "~", "\\", "./", "../")) or "://" in told or told[1:3] == ":\\"


def tensors_in(directory: Path) -> Mapping[str, TensorHeader]:
    """The tensors by the headers of a few files; empty where there are more, or one is broken."""
    files = loaded_files(directory)
    found: dict[str, TensorHeader] = {}
    try:
        for file in files if len(files) <= MOST_HEADERS else ():
            must_be_inside(file, directory)
            found |= read_header(file)
    except UnreadableFileError:
        return {}
    return found


def _source(directory: Path) -> str:
    return "total_size of the index" if is_file(directory / INDEX) else "size of the files"
