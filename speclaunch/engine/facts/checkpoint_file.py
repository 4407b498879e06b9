"""File format for a checkpoint's facts, and the folders in which a team stores such files.

The index and a team's folders both use `<folder>/<organization>/<name>.json`. The JSON is
untrusted.

ModelOpt lists every module of a mixed quantization by name: up to 22,000 names (several megabytes).
The file stores ranges instead (`quantized_layer_ranges`): `model.layers.[0-60].mlp.up_proj` means
61 names. Readers get the publisher's original `quantized_layers`.

No name or link in an untrusted repository may lead out of its `.speclaunch/models`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from speclaunch.core import (
    MOST_BYTES,
    UnreadableFileError,
    is_directory,
    lazy,
    mapping,
    read_object,
    reads,
    size,
    text,
    texts,
)
from speclaunch.engine.facts.facts import (
    COMPLETE_CONFIG,
    Checkpoint,
    FactSource,
    Origin,
    PartialConfig,
    UnknownFact,
    checkpoint_fact,
)
from speclaunch.engine.facts.known_models import HUB_NAME
from speclaunch.engine.facts.read_checkpoint import (
    from_config,
    quantization_config_in,
    quantization_in,
    switch,
)

if TYPE_CHECKING:
    from speclaunch.engine.facts.tensors import TensorFacts


SHORT = "quantized_layer_ranges"
LONG = "quantized_layers"
_RANGE = lazy(r"\[(\d{1,6})-(\d{1,6})\]")
_MOST_NAMES = 100_000
_DEPTH = 3


def expanded(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `config` with all ranges expanded. Raises ValueError for more than 100,000 names."""
    return _expanded(config, [_MOST_NAMES], _DEPTH)


def _expanded(config: Mapping[str, Any], left: list[int], depth: int) -> dict[str, Any]:
    """Expand as `expanded` does. `left[0]`: the number of names still allowed, reduced in place."""
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
            raise ValueError(f"`{SHORT}` expands to more than {_MOST_NAMES} layers")
        template = text.replace("%", "%%")
        template += "".join("%d" + after.replace("%", "%%") for after in parts[2::3])
        found |= {template % chosen: value for chosen in product(*numbers)}
    return found


FORMAT = 1
MOST_BYTES_OF_FILE = 1 << 20
_DAY = lazy(r"\d{4}-\d\d-\d\d\Z", re.ASCII)
_COMMIT = lazy(r"[0-9a-f]{40}\Z")


class CheckpointFile(Struct, frozen=True):
    """The facts in one file. Fields that are None or empty are unknown."""

    model: str
    kind: str
    """Kind of source. `config`: the complete published config; `sibling`: another export of the
    same architecture; `training`: the training config; `documents`: published documents; `disk`:
    saved by `models pull`."""
    source: str
    read: str
    """Date on which the source was read, YYYY-MM-DD."""
    config: Mapping[str, Any] = {}
    unread: tuple[str, ...] = ()
    """Keys of config.json that were not read, or `config` if no key was read."""
    also: tuple[str, ...] = ()
    """Other sources that agree with `source`."""
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
    """From the headers of the weight files: the `count` of tensors, their `bytes` by data type and,
    if few, their `shapes` (`[data type, shape]` by name)."""
    weights_source: str | None = None
    draft: Mapping[str, Any] = {}
    """For a draft: `for` (its targets), `algorithm`, `since` (first SGLang release), `sources`."""
    stated: Mapping[str, Any] = {}
    """`keys` of config.json whose values a document states, and that document (`source`)."""

    @property
    def is_read(self) -> bool:
        """True if any part of config.json was read."""
        return COMPLETE_CONFIG not in self.unread


def file_of(folder: Path, name: str) -> Path | None:
    """Return the path of a checkpoint's facts file below `folder`; None for an invalid name."""
    return folder / f"{name}.json" if HUB_NAME.match(name) else None


def read_file(path: Path, name: str) -> CheckpointFile:
    """Read the file of the checkpoint called `name`. Raises UnreadableFileError."""
    record = read_object(path, MOST_BYTES_OF_FILE)
    if record.get("format") != FORMAT:
        raise UnreadableFileError(f"{path.name} does not have format {FORMAT}: update speclaunch")
    if record.get("model") != name:
        model = f"{record.get('model')!r:.120}, not {name!r:.120}"
        raise UnreadableFileError(f"{path.name} describes the model {model}")
    source, day = text(record.get("source")), text(record.get("read"))
    if source is None or day is None or not _DAY.match(day):
        raise UnreadableFileError(f"{path.name} needs `source` and a date in `read`")
    config, unread = record.get("config", {}), record.get("unread", [])
    if not isinstance(config, dict) or not isinstance(unread, list):
        raise UnreadableFileError(f"{path.name}: `config` or `unread` has the wrong type")
    try:
        config, quantization_file = (
            expanded(config),
            expanded(mapping(record.get("quantization_file"))),
        )
    except ValueError as error:
        raise UnreadableFileError(f"{path.name}: {error}") from None
    revision = text(record.get("revision"))
    weights, tokenizer = mapping(record.get("weights")), mapping(record.get("tokenizer"))
    return CheckpointFile(
        name,
        text(record.get("kind")) or "documents",
        source,
        day,
        config,
        texts(unread),
        texts(record.get("also")),
        text(record.get("confidence")),
        revision if revision and _COMMIT.match(revision) else None,
        quantization_file,
        size(weights.get("bytes"), most=MOST_BYTES),
        weights.get("exact") is True,
        switch(record.get("mtp_weights")),
        switch(record.get("has_token_map")),
        switch(record.get("gated")),
        size(tokenizer.get("tokens")),
        text(tokenizer.get("digest")),
        mapping(record.get("tensors")),
        text(weights.get("source")),
        mapping(record.get("draft")),
        mapping(record.get("stated")),
    )


def checkpoint_of(found: CheckpointFile, name: str, origin: Origin) -> Checkpoint | UnknownFact:
    """Return the checkpoint `name` from a file's facts, or an UnknownFact if it has no config."""
    if not found.is_read:
        return UnknownFact(
            checkpoint_fact(name),
            f"the {origin.provenance} lists its target, but not its config.json",
            "pass --models DIR or --online",
        )
    config: Mapping[str, Any] = found.config
    unread = set(found.unread) - _nested_keys(found.config)
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
    quantization_method = quantization_in(found.quantization_file)
    if quantization_method is not None and not found.config.get("quantization_config"):
        known["quantization"] = quantization_method
        known["quantization_config"] = quantization_config_in(found.quantization_file)
    return from_config(name, config, None, **known)


def origin_of(
    found: CheckpointFile, provenance: FactSource, path: Path, revision: str | None
) -> Origin:
    """Return the origin of the facts in `found`; `doubt` states why they may not fit `revision`."""
    doubt = None
    is_other = revision not in (None, "main") and not (found.revision or "").startswith(
        str(revision)
    )
    if is_other:
        known = f"revision {found.revision[:12]}" if found.revision else "no known revision"
        doubt = f"of {known}, not {revision}"
    elif found.kind == "training":
        doubt = "from its training config"
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


def _tensors(stored: Mapping[str, Any]) -> TensorFacts | None:
    if not stored:
        return None
    from speclaunch.engine.facts.tensors import stored_tensors  # noqa: PLC0415  few entries have any

    return stored_tensors(stored)


def _nested_keys(config: Mapping[str, Any], depth: int = 3) -> set[str]:
    keys = set(config)
    if depth:
        for value in config.values():
            if isinstance(value, dict):
                keys |= _nested_keys(value, depth - 1)
    return keys


FOLDER = Path(".speclaunch", "models")
"""Relative path of the folder for facts, next to the recipes or in a parent directory."""
_MOST_FILES = 10_000


def models_folders(start: Path) -> tuple[Path, ...]:
    """Return every `.speclaunch/models` from `start` (a file or directory) upward, nearest first.

    The search ends at the repository's root, the directory that contains `.git` (a directory, or a
    file in a worktree or submodule). Outside a repository it ends at the home directory, else at
    the file system's root. Links in a directory's path are resolved; for a linked file, the search
    starts at the link. Never raises.
    """
    return tuple(
        directory / FOLDER for directory in upward(start) if is_directory(directory / FOLDER)
    )


def facts_file(folders: Iterable[Path], name: str) -> Path | None:
    """Return the file of checkpoint `name` in the first folder that has one, else None.

    Raises UnreadableFileError if the file or the folder is a link that leads out of the folder.
    """
    for folder in folders:
        path = file_of(folder, name)
        if path is not None and reads.lexists(path):
            refuse_a_way_out(folder, path)
            return path
    return None


def stored_names(folder: Path) -> Iterator[str]:
    """Yield at most 10,000 checkpoint names in `folder`, sorted. Follows no directory links."""
    found: list[str] = []
    try:
        for entry in sorted(folder.iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                found += sorted(f"{entry.name}/{file.name}" for file in entry.iterdir())
            else:
                found.append(entry.name)
            if len(found) > _MOST_FILES:
                break
    except OSError:
        pass
    for name in found[:_MOST_FILES]:
        model = name.removesuffix(".json")
        if model != name and HUB_NAME.match(model):
            yield model


def refuse_a_way_out(folder: Path, path: Path) -> None:
    """Raise UnreadableFileError if a link in `path` leads out of `folder`.

    Neither `.speclaunch` nor `models` may be a link.
    """
    try:
        if folder.parts[-2:] == FOLDER.parts:
            base = reads.resolve(folder.parent.parent) / FOLDER
        else:  # named by the user
            base = reads.resolve(folder)
        inside = reads.resolve(path).is_relative_to(base)
    except (OSError, RuntimeError, ValueError):  # RuntimeError: cyclic links
        inside = False
    if not inside:
        raise UnreadableFileError(f"{path} links outside {FOLDER}: replace the link with the file")


def is_outside(folder: Path, path: Path) -> bool:
    """True if a path, with links resolved, is outside the project of `folder`.

    The project is the repository of `folder`. Without a repository, it is the working directory if
    `folder` is below it, else `folder` itself.
    """
    try:
        real, own = reads.resolve(path), _directory(folder)
        here = reads.resolve(Path())
    except (OSError, RuntimeError, ValueError):
        return True
    repository = next((parent for parent in upward(folder) if reads.lexists(parent / ".git")), None)
    root = repository or (here if own.is_relative_to(here) else own)
    return not real.is_relative_to(root)


def home_of_facts(start: Path) -> Path:
    """Return the folder in which `models pull` saves facts for a recipe at `start`.

    This is the nearest existing `.speclaunch/models` upward, else such a path next to the recipe.
    The folder is not created.
    """
    found = models_folders(start)
    return found[0] if found else _directory(start) / FOLDER


def _directory(start: Path) -> Path:
    return reads.resolve(start if is_directory(start) else start.parent)


def upward(start: Path) -> Iterator[Path]:
    """Yield the directory of `start` and its parents, up to the repository's root or home."""
    try:
        own = _directory(start)
    except (OSError, RuntimeError, ValueError):
        return
    home = reads.realpath(os.path.expanduser("~"))  # noqa: PTH111  Path's own raises without one
    for directory in (own, *own.parents):
        yield directory
        if str(directory) == home or reads.lexists(directory / ".git"):
            return


def project_root(directory: Path) -> str:
    """Return the resolved path of a directory's repository, else of the directory itself."""
    own = reads.realpath(str(directory))
    for folder in (own, *map(str, Path(own).parents)):
        if reads.lexists(f"{folder}/.git"):
            return folder
    return own
