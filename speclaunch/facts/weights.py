"""What the weight files of a checkpoint say, without reading a weight."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from speclaunch.facts.safe_json import (
    MAX_INDEX_BYTES,
    UnreadableError,
    mapping,
    read_object,
    size,
)

INDEX = "model.safetensors.index.json"
_MTP = re.compile(r"(^|\.)(mtp|mtp_layers|mtp_block|nextn|nextn_layers)\.")
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_NEXTN = re.compile(r"\.(eh_proj|enorm|hnorm|shared_head|embed_tokens_nextn)\.")


@dataclass(frozen=True, slots=True)
class Weights:
    """Names of the tensors, total bytes, and files that are named and not there.

    `names` is None where no file says them (pickled weights, or none at all).
    """

    names: frozenset[str] | None = None
    total_bytes: int | None = None
    missing_files: tuple[str, ...] = ()

    def has_mtp(self, hidden_layers: int | None) -> bool | None:
        """Whether there are weights of multi-token-prediction layers.

        They are called `mtp.…`, or are the layers behind the last one (`model.layers.61.eh_proj`
        for the 61 layers of DeepSeek-V3: deepseek_nextn.py and mimo_mtp.py of 0.5.23).
        """
        if self.names is None:
            return None
        for name in self.names:
            if _MTP.search(name) or _NEXTN.search(name):
                return True
            layer = _LAYER.search(name)
            if layer and hidden_layers is not None and int(layer[1]) >= hidden_layers:
                return True
        return False

    def has_token_map(self) -> bool | None:
        """Whether there is a map from the draft's vocabulary to the target's (EAGLE-3's `d2t`)."""
        if self.names is None:
            return None
        return any(name.split(".")[-1] == "d2t" for name in self.names)


def read_weights(directory: Path) -> Weights:
    """The weights in a directory: from the index, else from the header of a single file."""
    files = sorted(directory.glob("*.safetensors")) if directory.is_dir() else []
    index = directory / INDEX
    if index.is_file():
        try:
            return _from_index(index, {file.name for file in files})
        except UnreadableError:
            return Weights()
    names: set[str] = set()
    total = 0
    for file in files:
        found = _header(file)
        if found is None:
            return Weights()
        names |= found
        total += file.stat().st_size
    return Weights(frozenset(names), total) if files else Weights()


def _from_index(index: Path, there: Collection[str]) -> Weights:
    found = read_object(index, MAX_INDEX_BYTES)
    where = mapping(found.get("weight_map"))
    wanted = {file for file in where.values() if isinstance(file, str)}
    total = size(mapping(found.get("metadata")).get("total_size"))
    # an index alone, without any file, is a fact sheet and no broken download
    missing = sorted(wanted - set(there)) if there else []
    return Weights(frozenset(where), total, tuple(missing[:100]))


def _header(file: Path) -> set[str] | None:
    """The names in a safetensors file: 8 bytes of length, then that much JSON."""
    try:
        with file.open("rb") as stream:
            start = stream.read(8)
            if len(start) < 8:
                return None
            (length,) = struct.unpack("<Q", start)
            if length > MAX_INDEX_BYTES:
                return None
            found = json.loads(stream.read(length))
    except (OSError, ValueError, RecursionError):
        return None
    return {name for name in found if name != "__metadata__"} if isinstance(found, dict) else None
