"""Compares entries with whole configs, and with what a second source says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from model_indexing.entries import Entry, flat
from model_indexing.unread import read_keys
from speclaunch.core.reads.safe_json import size
from speclaunch.engine.facts.checkpoint_file import expanded

_BESIDE = ".hf_quant_config"
_NAMES = {"dtype": "torch_dtype", "compression_config": "quantization_config"}
_KEPT = ("head_dim", "kv_lora_rank", "qk_rope_head_dim", "num_key_value_heads")


class Compared(NamedTuple):
    """How many fields were compared, and those that differ."""

    fields: int
    differ: list[str]


def with_configs(index: Mapping[str, Entry], folder: Path) -> Iterator[tuple[str, Compared]]:
    """Every `org--name.json` of a folder, field by field, against the entry of that name."""
    for path in sorted(folder.glob("*--*.json")):
        stem = path.stem
        name = stem.removesuffix(_BESIDE).replace("--", "/", 1)
        entry = index.get(name)
        if entry is None:
            yield name, Compared(0, ["no entry"])
            continue
        key = "quantization_file" if stem.endswith(_BESIDE) else "config"
        own, other = (
            dict(_leaves(expanded(entry.get(key, {})))),
            dict(_leaves(json.loads(path.read_bytes()))),
        )
        missing = object()
        differ = [
            one
            for one in sorted({*own, *other})
            if own.get(one, missing) != other.get(one, missing)
        ]
        yield f"{name} {key}", Compared(len(other), differ)


def repository(source: str) -> str:
    """Of which repository a source is: `owner/name`, of `owner/name@commit:path`."""
    return source.partition("@")[0].partition(" ")[0]


def with_source(entry: Entry, config: Mapping[str, Any]) -> Compared:
    """The keys that the product reads and that both an entry and another source say; KV elements a
    token where both say all that they depend on."""
    own, other = _plain(entry.get("config", {})), _plain(config)
    both = [
        key
        for key in other
        if key in own and key in read_keys() and not isinstance(other[key], Mapping)
    ]
    differ = [
        f"{key}: {own[key]!r}, the other says {other[key]!r}"
        for key in both
        if own[key] != other[key] and other[key] is not None and own[key] is not None
    ]
    fields = len(both)
    left, right = key_value_elements(own), key_value_elements(other)
    alike = all((own.get(key) is None) == (other.get(key) is None) for key in _KEPT)
    if alike and left is not None and right is not None:
        fields += 1
        differ += [f"KV elements a token: {left} and {right}"] if left != right else []
    return Compared(fields, differ)


def key_value_elements(config: Mapping[str, Any]) -> int | None:
    """Elements that all layers of a model keep of a token when each keeps every token; None where
    the config does not say it."""
    layers = size(config.get("num_hidden_layers"))
    rank, rope = size(config.get("kv_lora_rank")), size(config.get("qk_rope_head_dim"), least=0)
    if layers is None:
        return None
    if rank is not None:
        return None if rope is None else layers * (rank + rope)
    heads, hidden = size(config.get("num_attention_heads")), size(config.get("hidden_size"))
    dim = size(config.get("head_dim")) or (hidden // heads if hidden and heads else None)
    kept = size(config.get("num_key_value_heads"))
    return None if dim is None or kept is None else layers * 2 * kept * dim


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    return {_NAMES.get(key, key): value for key, value in flat(config).items()}


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else key)
    elif value is not None or path:
        yield path, value
