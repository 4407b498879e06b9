"""Weights index and tokenizer vocabulary in a checkpoint's directory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from speclaunch.core import (
    MAX_CONFIG_BYTES,
    MAX_INDEX_BYTES,
    MAX_TOKENIZER_BYTES,
    MOST_BYTES,
    UnreadableFileError,
    is_directory,
    is_file,
    lazy,
    mapping,
    read_object,
    reads,
    size,
    text,
)
from speclaunch.engine.facts.safetensors_header import read_names

INDEX = "model.safetensors.index.json"
_MOST_FILES = 512
"""Maximum number of files without an index whose headers are read."""
_MOST_MISSING = 100

# A multi-token-prediction layer is called `mtp.…`, `model.mtp_layers.0.…`, `mtp_block.0.…` or
# `language_model.mtp.…`: mimo_mtp.py, mimo_v2_nextn.py, qwen3_5_mtp.py, nemotron_h_mtp.py,
# deepseek_v4_nextn.py, hunyuan_v4_nextn.py, longcat_flash_nextn.py, iquest_q1_mtp.py,
# ernie4_eagle.py in srt/models of 0.5.23.
_NAMED = lazy(r"(?:^|\.)(?:mtp|nextn)(?:_[a-z_]+)?\.")
# Or it is the layer after the last one, `model.layers.61.…` for the 61 layers of DeepSeek-V3:
# deepseek_weight_loader.py, glm4_moe.py, glm5_next_nextn.py, step3p5_mtp.py, hunyuan_v3_nextn.py.
# The prefix excludes a deep vision tower.
_LAYER = lazy(r"(?:model\.)?(?:language_model\.)?(?:model\.)?layers\.([0-9]+)\.(.*)")
# Only such a layer has these, with any layer number in a separate copy (`model.layers.0.…`).
_OWN = ("eh_proj.", "enorm.", "hnorm.", "shared_head.norm.")
_MARKS = ("mtp", "nextn", *_OWN)
# Copies of the target's weights in such a layer, skipped by the engine.
_SHARED = ("embed_tokens.", "shared_head.head.")


class CheckpointWeights(Struct, frozen=True):
    """Names of the tensors, total bytes, and files that the index names but are missing.

    `names` is None if no file lists them (pickled weights, or no weights).
    """

    names: frozenset[str] | None = None
    total_bytes: int | None = None
    missing_files: tuple[str, ...] = ()

    def has_mtp(self, hidden_layers: int | None) -> bool | None:
        """True if there are weights of multi-token-prediction layers.

        None if unknown: no file lists the names, or no name marks such a layer and `hidden_layers`
        is None.
        """
        if self.names is None:
            return None
        marks = (*_MARKS, f"layers.{hidden_layers}.")
        if any(_is_mtp(name, hidden_layers) for name in self._with(*marks)):
            return True
        return None if hidden_layers is None else False

    def has_token_map(self) -> bool | None:
        """True if there is a map from the draft's vocabulary to the target's (EAGLE-3's `d2t`)."""
        if self.names is None:
            return None
        return any(name.rpartition(".")[2] == "d2t" for name in self._with("d2t"))

    def _with(self, *marks: str) -> Iterator[str]:
        """Yield the names that contain a mark. Searches one joined text, because there may be 10^5
        names."""
        names = self.names or frozenset()
        together = "\n".join(names)
        found = [mark for mark in marks if mark in together]
        if found:
            yield from (name for name in names if any(mark in name for mark in found))


def read_weights(directory: Path) -> CheckpointWeights:
    """Return the weights in a directory, from the index or else from the file headers."""
    files = weight_files(directory)
    if is_file(directory / INDEX):
        try:
            return _from_index(directory / INDEX, files)
        except UnreadableFileError:
            return CheckpointWeights(total_bytes=_total(files))
    if not files or len(files) > _MOST_FILES:
        return CheckpointWeights(total_bytes=_total(files))
    names: set[str] = set()
    for file in files:
        try:
            names |= read_names(file).keys()
        except UnreadableFileError:
            return CheckpointWeights(total_bytes=_total(files))
    return CheckpointWeights(frozenset(names), _total(files))


def _is_mtp(name: str, hidden_layers: int | None) -> bool:
    if _NAMED.search(name):
        return True
    layer = _LAYER.match(name)
    if layer is None:
        return False
    if layer[2].startswith(_OWN):
        return True
    return layer[1] == str(hidden_layers) and not layer[2].startswith(_SHARED)


def weight_files(directory: Path) -> list[Path]:
    """Return the safetensors files in a directory, sorted by name."""
    found = reads.below(directory, ".safetensors") if is_directory(directory) else []
    return [file for file in found if is_file(file)]  # skip broken links of a cache


def loaded_files(directory: Path) -> list[Path]:
    """Return the files that the engine loads: those in the index, if there is one.

    `filter_duplicate_safetensors_files` in srt/model_loader/weight_utils.py.
    """
    files = weight_files(directory)
    try:
        index = read_object(directory / INDEX, MAX_INDEX_BYTES)
    except UnreadableFileError:
        return files
    named = {file for file in mapping(index.get("weight_map")).values() if isinstance(file, str)}
    return [file for file in files if file.name in named]


def _total(files: Collection[Path]) -> int | None:
    try:
        return sum(map(reads.size, files)) or None
    except OSError:
        return None


def _from_index(index: Path, files: Collection[Path]) -> CheckpointWeights:
    found = read_object(index, MAX_INDEX_BYTES)
    where = mapping(found.get("weight_map"))
    named = {file for file in where.values() if isinstance(file, str)}
    total = size(mapping(found.get("metadata")).get("total_size"), most=MOST_BYTES)
    # an index without any file is a fact sheet, not a broken download
    missing = sorted(named - {file.name for file in files}) if files else []
    return CheckpointWeights(
        frozenset(where) if where else None,
        total or (None if missing else _total(files)),
        tuple(missing[:_MOST_MISSING]),
    )


TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
SPECIAL_TOKENS_FILE = "special_tokens_map.json"


class Vocabulary(Struct, frozen=True):
    """The number of tokens, including added tokens, and a digest. Equal digests mean equal
    mappings."""

    tokens: int
    digest: str


def read_vocabulary(directory: Path) -> Vocabulary | None:
    """Return the vocabulary of the tokenizer's `get_vocab()`, read from files. None if unknown.

    The vocabulary is in `tokenizer.json` (else `vocab.json`), plus the tokens that this file and
    `tokenizer_config.json` add. A special token without an id gets one only when the tokenizer is
    loaded: such a vocabulary is unknown.
    """
    try:
        if is_file(directory / TOKENIZER_FILE):
            found = _of_tokenizer(read_object(directory / TOKENIZER_FILE, MAX_TOKENIZER_BYTES))
        else:
            found = read_object(directory / "vocab.json", MAX_TOKENIZER_BYTES)
            found |= _optional(directory / "added_tokens.json")
        config = _optional(directory / TOKENIZER_CONFIG)
        special = [
            *_special_tokens(config),
            *_special_tokens(_optional(directory / SPECIAL_TOKENS_FILE)),
        ]
    except UnreadableFileError:
        return None
    ids = {token: int(at) for token, at in found.items() if size(at, least=0) is not None}
    if not ids:
        return None
    for at, token in mapping(config.get("added_tokens_decoder")).items():
        content = text(mapping(token).get("content"))
        if content is not None and at.isascii() and at.isdigit() and len(at) < 10:
            ids.setdefault(content, int(at))
    if any(token not in ids for token in special):
        return None
    # escaped, sorted by token: a unique text for each mapping
    encoded = json.dumps(ids, sort_keys=True)
    digest = hashlib.sha256(encoded.encode("ascii")).hexdigest()[:32]
    return Vocabulary(len(ids), digest)


def _of_tokenizer(found: Mapping[str, Any]) -> dict[str, Any]:
    vocabulary = mapping(found.get("model")).get("vocab")
    if isinstance(vocabulary, list):  # Unigram: [token, score] pairs, the id is the position
        ids: dict[str, Any] = {
            item[0]: at
            for at, item in enumerate(vocabulary)
            if isinstance(item, list) and item and isinstance(item[0], str)
        }
    else:
        ids = dict(mapping(vocabulary))
    added = found.get("added_tokens")
    for token in added if isinstance(added, list) else ():
        content = text(mapping(token).get("content"))
        if content is not None:
            ids[content] = mapping(token).get("id")
    return ids


def _special_tokens(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield `bos_token` and similar tokens, and the additional lists. Each is a text, or an object
    with one."""
    values = [value for key, value in config.items() if key.endswith("_token")]
    for key in ("additional_special_tokens", "extra_special_tokens"):
        more = config.get(key)
        values += list(more.values()) if isinstance(more, dict) else []
        values += more if isinstance(more, list) else []
    for token in values:
        content = text(token) or text(mapping(token).get("content"))
        if content is not None:
            yield content


def _optional(path: Path) -> dict[str, Any]:
    return read_object(path, MAX_CONFIG_BYTES) if is_file(path) else {}
