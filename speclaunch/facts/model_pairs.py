"""Which drafts were made for which target, as far as the index of checkpoints knows.

`models/pairs.json` is made from the entries by `tools/model_pairs.py`, so that one target costs
one small file, and not all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from speclaunch.facts.known_models import likely
from speclaunch.reads.safe_json import UnreadableFileError, mapping, read_object, text, texts
from speclaunch.record import record
from speclaunch.resources import models_dir

FILE = "pairs.json"
FORMAT = 1
_BY_FOUNDATION = ("high", "medium", "low", None)


@record
class ModelPair:
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


@record
class _Table:
    """The file as it is, but for the targets of each draft: one lint asks for one target."""

    drafts: Mapping[str, Any]
    targets: Mapping[str, tuple[str, ...]]
    partners: Mapping[str, Any]


@lru_cache(maxsize=1)
def _table() -> _Table:
    return _read(models_dir() / FILE)


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
