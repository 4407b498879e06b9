"""The index of public checkpoints that ships with speclaunch: one small file a checkpoint."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from speclaunch.engine.nearest import nearest
from speclaunch.facts.hub_name import HUB_NAME
from speclaunch.patterns import lazy
from speclaunch.resources import models_dir

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
