"""Index of public checkpoints, shipped with speclaunch: one small file per checkpoint.

Also lists the known drafts of each target. `tools/model_pairs.py` generates `models/pairs.json`
from the entries, so that looking up a target reads one small file instead of all entries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from speclaunch.core import UnreadableFileError, lazy, mapping, models_dir, read_object, text, texts
from speclaunch.engine.releases.nearest import nearest

HUB_NAME = lazy(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?\Z", re.ASCII)
"""Pattern of a hub name. Excludes `..`, a leading dot and anything else that could lead out of a
folder."""


_EXPORTED = (
    "fp8|fp4|nvfp4|mxfp4|mxfp8|awq|gptq|gguf|bnb|int4|int8|w4a16|w4afp8|w4a8|w8a8|w8a16|w4a4"
    "|4bit|8bit|4-bit|8-bit|fp8kv|dynamic|kv|marlin|eagle|block|quantized|unsloth|bf16|channel|ptpc"
)
_EXPORT_WORDS = lazy(rf"(?<![a-z0-9])(?:{_EXPORTED})(?![a-z0-9])", re.IGNORECASE)
_QUANTISED = lazy(
    r"(?<![a-z0-9])(?:fp8\w*|fp4|nvfp4|mxfp4|mxfp8|awq|gptq|gguf|bnb|int[48]|w\d+a\w*\d|[48]-?bit)"
    r"(?![a-z0-9])",
    re.IGNORECASE,
)


def same_quantization(name: str, other: str) -> bool:
    """True if both names state the same weight storage (`-FP8`, `-AWQ`, …)."""
    return _quantised_words(name) == _quantised_words(other)


def likely(name: str) -> tuple[str, str] | None:
    """Return the index's checkpoint that `name` almost certainly means, and a note on the match.
    None if no checkpoint matches.

    Matches a directory named like exactly one listed checkpoint (`/models/Llama-3.1-8B-Instruct`),
    and a hub name in a different case, which the hub accepts.
    """
    listed = index_names()
    if HUB_NAME.match(name) and "/" in name:
        same = [candidate for candidate in listed if candidate.lower() == name.lower()]
        return (same[0], f"listed as {same[0]}") if len(same) == 1 else None
    if "/" not in name:
        return None
    path = _of_cache(name) or "/".join(name.rstrip("/").split("/")[-2:])
    last = path.rpartition("/")[2]
    same = (
        [path]
        if path in listed
        else [candidate for candidate in listed if candidate.endswith(f"/{last}")]
    )
    return (same[0], f"identified as {same[0]} by its path") if len(same) == 1 else None


def seems_to_be(name: str) -> str | None:
    """Return the listed checkpoint that `name` seems to derive from or misspell; None if unclear.

    A guess from the name alone: for display, never used as a fact.
    """
    listed = index_names()
    base = _base(name)
    words = _quantised_words(name)
    same = [
        candidate
        for candidate in listed
        if _base(candidate) == base and _quantised_words(candidate) <= words
    ]
    if same:  # the name with the fewest additions
        return min(
            same,
            key=lambda candidate: (len(_quantised_words(candidate)), len(candidate), candidate),
        )
    digits = re.findall(r"\d+", name)  # another size or date is a different model, not a typo
    return next(iter(nearest(name, [o for o in listed if re.findall(r"\d+", o) == digits])), None)


@lru_cache(maxsize=1)
def index_names() -> Sequence[str]:
    """Return the names of all checkpoints in the index, sorted."""
    folder = models_dir()
    found = folder.glob("*/*.json")
    return tuple(sorted(f"{path.parent.name}/{path.stem}" for path in found))


def near_names(name: str, count: int = 3) -> tuple[str, ...]:
    """Return up to `count` names in the index that the user may have meant.

    These are an export's base checkpoint, corrected typos, and names that differ only in the
    organization.
    """
    names = tuple(index_names())
    short = name.rpartition("/")[2].casefold()
    same = [candidate for candidate in names if candidate.rpartition("/")[2].casefold() == short]
    seems = seems_to_be(name)
    found = (*same, *((seems,) if seems else ()), *nearest(name, names, count))
    return tuple(dict.fromkeys(found))[:count]


def same_model(first: str, second: str) -> bool:
    """True if both names mean one model, ignoring exports, organizations and the prefix `meta-`."""
    names = {_base(name).removeprefix("meta-") for name in (first, second)}
    return len(names) == 1


def _base(name: str) -> str:
    """Return a name without its organization and its export suffixes."""
    plain = _EXPORT_WORDS.sub("", name.rstrip("/").rpartition("/")[2].replace("_", "-"))
    return re.sub(r"[-.]+", "-", plain).strip("-").lower()


def _of_cache(name: str) -> str:
    """Return the `org/name` in a hub cache path (`…/models--org--name/…`), else an empty string."""
    found = re.search(r"(?:^|/)models--([\w.-]+?)--([\w.-]+?)(?:/|$)", name)
    return f"{found[1]}/{found[2]}" if found else ""


def _quantised_words(name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _QUANTISED.findall(name.rpartition("/")[2]))


PAIRS_FILE = "pairs.json"
FORMAT = 1
_BY_FOUNDATION = ("high", "medium", "low", None)


class ModelPair(Struct, frozen=True):
    """A published draft for a target."""

    target: str
    draft: str
    algorithm: str
    """EAGLE3, EAGLE, DFLASH, DSPARK, NEXTN, STANDALONE, or one that SGLang does not support."""
    confidence: str | None = None
    """Confidence in the pair (or in the draft's config): high, medium, low, or None if unknown."""
    since: str | None = None
    """The first SGLang release that loads the draft; None if not stated."""
    form: str | None = None
    """Layout of the draft's weights (`speculators format`); None for SGLang's own layout."""
    sibling: str | None = None
    """The checkpoint that the draft was made for, if the target is only an export of it."""
    is_read: bool = False
    """True if any part of the draft's config.json is in the index."""
    sources: tuple[str, ...] = ()
    mode: str | None = None
    """The target's mode that the draft was trained for (`non-thinking`); None for all modes."""


def drafts_for(target: str) -> tuple[ModelPair, ...]:
    """Return the known drafts for a target, best supported first."""
    return _made_for(_listed(target))


def targets_of(draft: str) -> tuple[str, ...]:
    """Return the targets that a draft was trained for."""
    return _table().targets.get(_listed(draft), ())


def partners_of(target: str) -> tuple[str, ...]:
    """Return smaller complete models that can draft for the target, smallest first.

    They share the target's family, its vocabulary size and, if known, its tokenizer digest.
    """
    return texts(_table().partners.get(_listed(target)))


def _listed(name: str) -> str:
    if name in _table().drafts or name in _table().targets or name in _table().partners:
        return name
    meant = likely(name)
    return name if meant is None else meant[0]


def candidates_for(target: str) -> tuple[ModelPair, ...]:
    """Return the drafts for a target, then the models that can be its STANDALONE draft."""
    found = drafts_for(target)
    named = {pair.draft for pair in found}
    smaller = (name for name in partners_of(target) if name not in named)
    return (*found, *(ModelPair(target, name, "STANDALONE", "medium") for name in smaller))


class _Table(Struct, frozen=True):
    """Content of the pairs file, plus the targets of each draft."""

    drafts: Mapping[str, Any]
    targets: Mapping[str, tuple[str, ...]]
    partners: Mapping[str, Any]


@lru_cache(maxsize=1)
def _table() -> _Table:
    return _read(models_dir() / PAIRS_FILE)


@lru_cache(maxsize=512)
def _made_for(target: str) -> tuple[ModelPair, ...]:
    return tuple(_pair(target, row) for row in _rows(_table().drafts.get(target)))


def _rows(found: object) -> list[dict[str, Any]]:
    return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


def _read(path: Path) -> _Table:
    """Return the table in a file; empty if the file is missing or has another format."""
    try:
        table = read_object(path)
    except UnreadableFileError:
        table = {}
    if table.get("format") != FORMAT:
        table = {}
    drafts = mapping(table.get("drafts"))
    targets: dict[str, list[str]] = {}
    for target, found in drafts.items():
        for row in _rows(found):
            targets.setdefault(text(row.get("draft")) or "", []).append(target)
    names = {name: tuple(found) for name, found in targets.items()}
    return _Table(drafts, names, mapping(table.get("partners")))


def _pair(target: str, row: Mapping[str, Any]) -> ModelPair:
    return ModelPair(
        target,
        text(row.get("draft")) or "",
        text(row.get("algorithm")) or "",
        text(row.get("confidence")),
        text(row.get("since")),
        text(row.get("form")),
        text(row.get("of")),
        row.get("read") is True,
        texts(row.get("sources")),
        text(row.get("mode")),
    )


def foundation(confidence: str | None) -> int:
    """Return the rank of a confidence level: 0 for `high`, 3 for unknown."""
    known = confidence if confidence in _BY_FOUNDATION else None
    return _BY_FOUNDATION.index(known)
