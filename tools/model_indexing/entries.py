"""The entries of the index: one JSON file a checkpoint, written the same way every time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speclaunch.core.files import replace_file

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "models"
FORMAT = 1
KINDS = ("config", "sibling", "training", "documents", "disk")
ORDER = (
    *("format", "model", "kind", "base", "source", "also", "read", "confidence", "revision"),
    *("config", "unread", "absent", "stated", "quantization_file", "weights", "parameters_check"),
    *("mtp_weights", "has_token_map", "gated", "tokenizer", "tensors", "draft", "note"),
)
"""The keys of an entry, in the order in which they stand."""
NESTED = (
    *("text_config", "llm_config", "language_config", "thinker_config"),
    *("dflash_config", "eagle_config", "transformer_layer_config"),
)
"""The parts of a config whose keys count like the outer ones."""
DROPPED = frozenset({"auto_map", "mask_token_id"})
"""Keys that evidence leaves out of configs that it calls verbatim, and that rules read."""
_OUTER = ("architectures", "model_type")
_WIDE = 100

Entry = dict[str, Any]


def place(model: str, folder: Path = MODELS) -> Path:
    """Where the entry of a checkpoint stands."""
    return folder / f"{model}.json"


def read_all(folder: Path = MODELS) -> dict[str, Entry]:
    """Every entry by its place, sorted. Raises OSError, ValueError."""
    found = {}
    for path in sorted(folder.glob("*/*.json")):
        found[path.relative_to(folder).with_suffix("").as_posix()] = json.loads(path.read_bytes())
    return {name.removesuffix(".json"): entry for name, entry in found.items()}


def text_of(entry: Mapping[str, Any]) -> str:
    """The file of an entry: keys in their order, short values on one line."""
    known = {key: entry[key] for key in ORDER if key in entry}
    rest = {key: entry[key] for key in sorted(entry) if key not in known}
    return _text({**known, **rest}, 0) + "\n"


def write(entry: Mapping[str, Any], folder: Path = MODELS) -> bool:
    """Write an entry whole, or leave it. Returns whether it was another before."""
    path, data = place(entry["model"], folder), text_of(entry).encode()
    if path.is_file() and path.read_bytes() == data:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, data, 0o666)
    return True


def flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a config and of its parts, the innermost first; what model it is says the
    outermost."""
    found = dict(config)
    for key in NESTED:
        inner = config.get(key)
        if isinstance(inner, Mapping):
            found = {**found, **flat(inner)}
    return {**found, **{key: config[key] for key in _OUTER if config.get(key)}}


def _text(value: Any, depth: int) -> str:
    compact = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict) or (depth > 0 and len(compact) + depth <= _WIDE):
        return compact
    if not value:
        return "{}"
    inside = " " * (depth + 1)
    lines = (
        f"{inside}{json.dumps(key, ensure_ascii=False)}: {_text(inner, depth + 1)}"
        for key, inner in value.items()
    )
    return "{\n" + ",\n".join(lines) + "\n" + " " * depth + "}"


def wholes(entries: Mapping[str, Entry]) -> Iterator[Entry]:
    """The entries whose config was had as it is published, but for the keys that are dropped."""
    for entry in entries.values():
        if entry["kind"] in ("config", "disk") and DROPPED.issuperset(entry.get("unread", ())):
            yield entry
