"""The index of public checkpoints that ships with speclaunch: one small file a checkpoint.

Also which drafts were made for which target, as far as the index knows.

`models/pairs.json` is made from the entries by `tools/model_pairs.py`, so that one target costs one
small file, and not all of them.
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
"""How the hub calls a model: without `..`, a leading dot or anything that leaves a folder."""


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


def same_quantization(one: str, other: str) -> bool:
    """Whether two names say the same of how their weights are stored (`-FP8`, `-AWQ`, …)."""
    return _quantised_words(one) == _quantised_words(other)


def likely(name: str) -> tuple[str, str] | None:
    """The listed checkpoint that is nearly certainly meant, and why it is in doubt; None: none is.

    A directory that is called as exactly one listed checkpoint (`/models/Llama-3.1-8B-Instruct`,
    as people lay them out), and a name of the hub in other cases, which the hub takes too.
    """
    listed = index_names()
    if HUB_NAME.match(name) and "/" in name:
        same = [one for one in listed if one.lower() == name.lower()]
        return (same[0], f"its name is {same[0]}") if len(same) == 1 else None
    if "/" not in name:
        return None
    path = _of_cache(name) or "/".join(name.rstrip("/").split("/")[-2:])
    last = path.rpartition("/")[2]
    same = [path] if path in listed else [one for one in listed if one.endswith(f"/{last}")]
    return (same[0], f"taken for {same[0]} by its path") if len(same) == 1 else None


def seems_to_be(name: str) -> str | None:
    """The checkpoint of the index that `name` seems to be an export or a copy of, or a slip for.

    A guess from the name alone: to be shown, never to be taken.
    """
    listed = index_names()
    base = _base(name)
    said = _quantised_words(name)
    same = [one for one in listed if _base(one) == base and _quantised_words(one) <= said]
    if same:  # the plainest of them
        return min(same, key=lambda one: (len(_quantised_words(one)), len(one), one))
    digits = re.findall(r"\d+", name)  # another size or date is another model, and no slip
    return next(iter(nearest(name, [o for o in listed if re.findall(r"\d+", o) == digits])), None)


@lru_cache(maxsize=1)
def index_names() -> Sequence[str]:
    """The names of all checkpoints of the index, sorted."""
    folder = models_dir()
    found = folder.glob("*/*.json")
    return tuple(sorted(f"{path.parent.name}/{path.stem}" for path in found))


def near_names(name: str, count: int = 3) -> tuple[str, ...]:
    """Names of the index that somebody may have meant: what it seems to be an export of, slips of
    the keys, another (or no) organisation before the same name."""
    names = tuple(index_names())
    short = name.rpartition("/")[2].casefold()
    same = [one for one in names if one.rpartition("/")[2].casefold() == short]
    seems = seems_to_be(name)
    found = (*same, *((seems,) if seems else ()), *nearest(name, names, count))
    return tuple(dict.fromkeys(found))[:count]


def same_model(one: str, other: str) -> bool:
    """Whether two names are of one model, but for how it was exported, by whom, and Meta's own
    name before a model's."""
    names = {_base(name).removeprefix("meta-") for name in (one, other)}
    return len(names) == 1


def _base(name: str) -> str:
    """A name without its organisation and without what says how it was exported."""
    plain = _EXPORT_WORDS.sub("", name.rstrip("/").rpartition("/")[2].replace("_", "-"))
    return re.sub(r"[-.]+", "-", plain).strip("-").lower()


def _of_cache(name: str) -> str:
    """`org/name` of a path in a hub cache: `…/models--org--name/snapshots/…`."""
    found = re.search(r"(?:^|/)models--([\w.-]+?)--([\w.-]+?)(?:/|$)", name)
    return f"{found[1]}/{found[2]}" if found else ""


def _quantised_words(name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _QUANTISED.findall(name.rpartition("/")[2]))


PAIRS_FILE = "pairs.json"
FORMAT = 1
_BY_FOUNDATION = ("high", "medium", "low", None)


class ModelPair(Struct, frozen=True):
    """A draft that was made for a target, as it was published."""

    target: str
    draft: str
    algorithm: str
    """EAGLE3, EAGLE, DFLASH, DSPARK, NEXTN, STANDALONE; also what SGLang has no name for."""
    confidence: str | None = None
    """high, medium, low: how sure the pair (or the draft's config) is."""
    since: str | None = None
    """The first release of SGLang that loads it, where somebody says so."""
    form: str | None = None
    """The layout of its weights, where it is not SGLang's own: `speculators format`."""
    sibling: str | None = None
    """The checkpoint that it was made for, where the target is another export of that one."""
    is_read: bool = False
    """Whether anything of its config.json is in the index."""
    sources: tuple[str, ...] = ()
    mode: str | None = None
    """The mode of the target that it was trained for, if only one: `non-thinking`."""


def drafts_for(target: str) -> tuple[ModelPair, ...]:
    """The drafts that were made for a target, the best founded first; empty where none is known."""
    return _made_for(_listed(target))


def targets_of(draft: str) -> tuple[str, ...]:
    """The targets that a draft was made for."""
    return _table().targets.get(_listed(draft), ())


def partners_of(target: str) -> tuple[str, ...]:
    """Smaller complete models of the target's family with its vocabulary, the smallest first.

    Sizes of vocabularies are compared, and digests of tokenizers where both are known.
    """
    return texts(_table().partners.get(_listed(target)))


def _listed(name: str) -> str:
    """The name of the index that is meant: `/models/Qwen3-8B`, `Qwen/Qwen3-8b`."""
    if name in _table().drafts or name in _table().targets or name in _table().partners:
        return name
    meant = likely(name)
    return name if meant is None else meant[0]


def candidates_for(target: str) -> tuple[ModelPair, ...]:
    """Both: the drafts that were made for a target, then the partners for STANDALONE."""
    found = drafts_for(target)
    named = {one.draft for one in found}
    smaller = (name for name in partners_of(target) if name not in named)
    return (*found, *(ModelPair(target, name, "STANDALONE", "medium") for name in smaller))


class _Table(Struct, frozen=True):
    """The file as it is, but for the targets of each draft: one lint asks for one target."""

    drafts: Mapping[str, Any]
    targets: Mapping[str, tuple[str, ...]]
    partners: Mapping[str, Any]


@lru_cache(maxsize=1)
def _table() -> _Table:
    return _read(models_dir() / PAIRS_FILE)


@lru_cache(maxsize=512)
def _made_for(target: str) -> tuple[ModelPair, ...]:
    return tuple(_pair(target, one) for one in _rows(_table().drafts.get(target)))


def _rows(found: object) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _read(path: Path) -> _Table:
    """The table in a file; empty where there is none, as in a checkout without the index."""
    try:
        said = read_object(path)
    except UnreadableFileError:
        said = {}
    if said.get("format") != FORMAT:
        said = {}
    drafts = mapping(said.get("drafts"))
    targets: dict[str, list[str]] = {}
    for target, found in drafts.items():
        for one in _rows(found):
            targets.setdefault(text(one.get("draft")) or "", []).append(target)
    names = {name: tuple(found) for name, found in targets.items()}
    return _Table(drafts, names, mapping(said.get("partners")))


def _pair(target: str, said: Mapping[str, Any]) -> ModelPair:
    return ModelPair(
        target,
        text(said.get("draft")) or "",
        text(said.get("algorithm")) or "",
        text(said.get("confidence")),
        text(said.get("since")),
        text(said.get("form")),
        text(said.get("of")),
        said.get("read") is True,
        texts(said.get("sources")),
        text(said.get("mode")),
    )


def foundation(confidence: str | None) -> int:
    """How well something is founded, 0 the best."""
    known = confidence if confidence in _BY_FOUNDATION else None
    return _BY_FOUNDATION.index(known)
