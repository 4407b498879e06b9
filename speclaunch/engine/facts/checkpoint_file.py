"""The facts of one checkpoint as a file: an entry of the index, or of `.speclaunch/models/`.

Both have one form: `<folder>/<organisation>/<name>.json`, JSON of strangers like any other.

A table of quantised layers is written short there: `model.layers.[0-60].mlp.up_proj` for 61 names.
ModelOpt lists every module of a mixed quantisation by name, up to 22,000 of them in megabytes. The
file has `quantized_layer_ranges` there, with ranges of numbers in the names; whoever reads it sees
`quantized_layers` as the publisher wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from speclaunch.core import (
    MOST_BYTES,
    UnreadableFileError,
    lazy,
    mapping,
    read_object,
    size,
    text,
    texts,
)
from speclaunch.engine.facts.checkpoint import WHOLE, Checkpoint, FactSource, Origin, PartialConfig
from speclaunch.engine.facts.facts import checkpoint_fact
from speclaunch.engine.facts.known_models import HUB_NAME
from speclaunch.engine.facts.read_checkpoint import (
    from_config,
    quantization_config_in,
    quantization_in,
)
from speclaunch.engine.facts.unknown import UnknownFact

if TYPE_CHECKING:
    from speclaunch.engine.facts.tensors import TensorFacts

SHORT = "quantized_layer_ranges"
LONG = "quantized_layers"
_RANGE = lazy(r"\[(\d{1,6})-(\d{1,6})\]")
_MOST_NAMES = 100_000
_DEPTH = 3


def expanded(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with every table of ranges as the table of names that it stands for.

    Raises ValueError where ranges stand for more than 100,000 names, all tables together.
    """
    return _expanded(config, [_MOST_NAMES], _DEPTH)


def _expanded(config: Mapping[str, Any], left: list[int], depth: int) -> dict[str, Any]:
    """`left`: the names that may still be made."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if key == SHORT and isinstance(value, dict):
            found[LONG] = _names(value, left)
        elif isinstance(value, dict) and depth:
            found[key] = _expanded(value, left, depth - 1)
        else:
            found[key] = value
    return found


def _names(ranges: Mapping[str, Any], left: list[int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pattern, value in ranges.items():
        text, *parts = _RANGE.split(pattern)
        numbers = [
            range(int(low), int(high) + 1)
            for low, high in zip(parts[::3], parts[1::3], strict=True)
        ]
        left[0] -= prod(map(len, numbers))
        if left[0] < 0:
            raise ValueError(f"`{SHORT}` stands for more than {_MOST_NAMES} layers")
        template = text.replace("%", "%%")
        template += "".join("%d" + after.replace("%", "%%") for after in parts[2::3])
        found |= {template % chosen: value for chosen in product(*numbers)}
    return found


FORMAT = 1
"""The form that this reads and writes."""
MOST_BYTES_OF_FILE = 1 << 20
_DAY = lazy(r"\d{4}-\d\d-\d\d\Z", re.ASCII)
_COMMIT = lazy(r"[0-9a-f]{40}\Z")


class CheckpointFile(Struct, frozen=True):
    """What stands in the file. Fields that are None or empty are not known."""

    model: str
    kind: str
    """`config`: the whole config as published; `sibling`: of another export of the same
    architecture; `training`: the config that it was trained with;
    `documents`: stated there; `disk`: read by `models pull`."""
    source: str
    read: str
    """YYYY-MM-DD."""
    config: Mapping[str, Any] = {}
    unread: tuple[str, ...] = ()
    """Keys of config.json that nobody read, or `config` for all of them."""
    also: tuple[str, ...] = ()
    """Independent sources that say the same."""
    confidence: str | None = None
    revision: str | None = None
    quantization_file: Mapping[str, Any] = {}
    weight_bytes: int | None = None
    weights_exact: bool = False
    mtp_weights: bool | None = None
    has_token_map: bool | None = None
    gated: bool | None = None
    tokenizer_size: int | None = None
    tokenizer_digest: str | None = None
    tensors: Mapping[str, Any] = {}
    """What the headers of the weight files say: `count`, `bytes` by data type, and of small files
    `shapes` ([data type, shape] by name)."""
    weights_source: str | None = None
    draft: Mapping[str, Any] = {}
    """`for`, `algorithm`, `since`, `sources` of a draft."""
    stated: Mapping[str, Any] = {}
    """`keys` of config.json whose values the document `source` states."""

    @property
    def is_read(self) -> bool:
        """Whether anything of its config.json was read."""
        return WHOLE not in self.unread


def file_of(folder: Path, name: str) -> Path | None:
    """Where the facts of a checkpoint are kept below a folder; None for what is no name."""
    return folder / f"{name}.json" if HUB_NAME.match(name) else None


def read_file(path: Path, name: str) -> CheckpointFile:
    """The file of the checkpoint called `name`. Raises UnreadableFileError."""
    said = read_object(path, MOST_BYTES_OF_FILE)
    if said.get("format") != FORMAT:
        raise UnreadableFileError(f"{path.name} is not of format {FORMAT}: update speclaunch")
    if said.get("model") != name:
        raise UnreadableFileError(f"{path.name} is of the model {said.get('model')!r:.120}")
    source, day = text(said.get("source")), text(said.get("read"))
    if source is None or day is None or not _DAY.match(day):
        raise UnreadableFileError(f"{path.name} does not say its `source` and when it was `read`")
    config, unread = said.get("config", {}), said.get("unread", [])
    if not isinstance(config, dict) or not isinstance(unread, list):
        raise UnreadableFileError(f"{path.name}: `config` or `unread` is of another type")
    try:
        config, beside = expanded(config), expanded(mapping(said.get("quantization_file")))
    except ValueError as error:
        raise UnreadableFileError(f"{path.name}: {error}") from None
    revision = text(said.get("revision"))
    weights, tokenizer = mapping(said.get("weights")), mapping(said.get("tokenizer"))
    return CheckpointFile(
        name,
        text(said.get("kind")) or "documents",
        source,
        day,
        config,
        texts(unread),
        texts(said.get("also")),
        text(said.get("confidence")),
        revision if revision and _COMMIT.match(revision) else None,
        beside,
        size(weights.get("bytes"), most=MOST_BYTES),
        weights.get("exact") is True,
        _switch(said.get("mtp_weights")),
        _switch(said.get("has_token_map")),
        _switch(said.get("gated")),
        size(tokenizer.get("tokens")),
        text(tokenizer.get("digest")),
        mapping(said.get("tensors")),
        text(weights.get("source")),
        mapping(said.get("draft")),
        mapping(said.get("stated")),
    )


def checkpoint_of(found: CheckpointFile, name: str, origin: Origin) -> Checkpoint | UnknownFact:
    """The checkpoint called `name` by the facts in a file; what was not read stays unknown."""
    if not found.is_read:
        return UnknownFact(
            checkpoint_fact(name),
            f"the {origin.provenance} knows what it was made for, and not its config.json",
            "give --models DIR, or --online",
        )
    config: Mapping[str, Any] = found.config
    unread = set(found.unread) - _said(found.config)
    if unread:
        config = PartialConfig(name, found.config, unread)
    known: dict[str, Any] = {
        "mtp_weights": found.mtp_weights,
        "has_token_map": found.has_token_map,
        "weight_bytes": found.weight_bytes,
        "weights_rounded": found.weight_bytes is not None and not found.weights_exact,
        "tokenizer_size": found.tokenizer_size,
        "tokenizer_digest": found.tokenizer_digest,
        "gated": found.gated,
        "tensors": _tensors(found.tensors),
        "origin": origin,
    }
    beside = quantization_in(found.quantization_file)
    if beside is not None and not found.config.get("quantization_config"):
        known["quantization"] = beside
        known["quantization_config"] = quantization_config_in(found.quantization_file)
    return from_config(name, config, None, **known)


def origin_of(
    found: CheckpointFile, provenance: FactSource, path: Path, revision: str | None
) -> Origin:
    """Where facts come from; in doubt where another revision is asked for than they are of."""
    doubt = None
    is_other = revision not in (None, "main") and not (found.revision or "").startswith(
        str(revision)
    )
    if is_other:
        known = f"revision {found.revision[:12]}" if found.revision else "no known revision"
        doubt = f"of {known}, not {revision}"
    elif found.kind == "training":
        doubt = "by the config that it was trained with"
    elif found.confidence == "low":
        doubt = "from a single weak source"
    where = found.source if provenance is FactSource.INDEX else str(path)
    stated = () if is_other else texts(found.stated.get("keys"))
    return Origin(
        provenance,
        where,
        found.read,
        found.revision,
        doubt,
        stated=stated,
        stated_in=text(found.stated.get("source")) if stated else None,
    )


def _tensors(kept: Mapping[str, Any]) -> TensorFacts | None:
    if not kept:
        return None
    from speclaunch.engine.facts.tensors import kept_tensors  # noqa: PLC0415  few entries have any

    return kept_tensors(kept)


def _said(config: Mapping[str, Any], depth: int = 3) -> set[str]:
    """The keys of a config and of its nested objects."""
    keys = set(config)
    if depth:
        for value in config.values():
            if isinstance(value, dict):
                keys |= _said(value, depth - 1)
    return keys


def _switch(value: object) -> bool | None:
    return value if isinstance(value, bool) else None
