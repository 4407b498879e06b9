"""Finds the facts of the checkpoint that a model path means, the nearest source first."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.facts.checkpoint_file import (
    checkpoint_of,
    file_of,
    origin_of,
    read_file,
)
from speclaunch.facts.checkpoint_places import hub_cache, places
from speclaunch.facts.facts import UnknownFact, checkpoint_fact
from speclaunch.facts.hub_name import HUB_NAME
from speclaunch.facts.known_models import likely, same_quantization, seems_to_be
from speclaunch.facts.origin import Origin, Provenance
from speclaunch.facts.partial_config import PartialConfig
from speclaunch.facts.read_checkpoint import from_config, read_checkpoint
from speclaunch.facts.repository_facts import facts_file
from speclaunch.facts.sources import NOWHERE_ELSE, Sources
from speclaunch.patterns import lazy
from speclaunch.reads.safe_json import UnreadableFileError, is_file

_REMOTE = lazy(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_REVISION = lazy(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})*\Z", re.ASCII)


def find_checkpoint(
    name: str,
    sources: Sources = NOWHERE_ELSE,
    *,
    tokenizer: bool = False,
    revision: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Checkpoint | UnknownFact:
    """The facts of the checkpoint called `name`.

    The order: a directory of that name; below each of the sources' directories
    `organisation/name`, a hub cache, `name`; the Hugging Face cache; the repository's own facts;
    the index that ships; online the hub. Where the index knows only a part, or is in doubt, the
    hub goes before it. Then what `name` is assumed to be as. `revision` names a branch, a tag or a
    commit. Never raises for what it finds.
    """
    refused = _not_looked_for(name, revision)
    if refused is not None:
        return UnknownFact(checkpoint_fact(name), refused)
    variables = os.environ if environment is None else environment
    for directory in places(name, sources.directories, variables, revision):
        if is_file(directory / "config.json"):
            origin = Origin(_provenance(directory, sources, variables), str(directory))
            return read_checkpoint(name, directory, tokenizer=tokenizer, origin=origin)
    kept = kept_facts(name, sources, revision)
    whole = isinstance(kept, Checkpoint) and not kept.unread and _doubt(kept) is None
    if sources.online and HUB_NAME.match(name) and not whole:
        from speclaunch.facts.hub import fetch_checkpoint  # noqa: PLC0415

        fetched = fetch_checkpoint(name, tokenizer=tokenizer, revision=revision or "main")
        kept = fetched if isinstance(fetched, Checkpoint) else kept or fetched
    other = sources.assumed(name)
    if not isinstance(kept, Checkpoint) and other not in (None, name):
        plain = replace(sources, assume=())
        return _as(name, str(other), find_checkpoint(str(other), plain, environment=environment))
    if kept is not None:
        return kept
    why, remedy = _nowhere(name, sources, revision), _remedy(name, sources)
    return UnknownFact(checkpoint_fact(name), why, remedy)


def _not_looked_for(name: str, revision: str | None) -> str | None:
    if _REMOTE.match(name):
        return "URLs are not read"
    if name.lower().endswith(".gguf"):
        return "GGUF files are not read"
    if revision is not None and not _REVISION.match(revision):
        return f"{revision[:200]!r} is not a revision"
    return None


def kept_facts(
    name: str, sources: Sources, revision: str | None = None
) -> Checkpoint | UnknownFact | None:
    """What the repository's files say, else the index; None where neither has the name.

    The index is asked by the path of a directory only where nothing is assumed of that name.
    """
    try:
        path = facts_file(sources.repository, name)
        if path is not None:
            found = read_file(path, name)
            origin = origin_of(found, Provenance.REPOSITORY, path, revision)
            return checkpoint_of(found, name, origin)
        if sources.index is None:
            return None
        listed, doubt = name, None
        path = file_of(sources.index, name)
        if path is None or not is_file(path):
            meant = likely(name) if sources.assumed(name) is None else None
            if meant is None:
                return None
            listed, doubt = meant
            path = sources.index / f"{listed}.json"
        found = read_file(path, listed)
    except UnreadableFileError as error:
        return UnknownFact(checkpoint_fact(name), str(error))
    origin = origin_of(found, Provenance.INDEX, path, revision)
    return checkpoint_of(found, name, replace(origin, doubt=doubt or origin.doubt))


def _as(name: str, other: str, found: Checkpoint | UnknownFact) -> Checkpoint | UnknownFact:
    """The facts of `other` for `name`; how the weights are stored only where the names agree."""
    if isinstance(found, UnknownFact):
        why = f"it is assumed to be as {other}, of which nothing is known: {found.why}"
        return UnknownFact(checkpoint_fact(name), why, found.help)
    origin = None if found.origin is None else replace(found.origin, assumed=other, stated=())
    known = {field: found.told(field) for field in _OF_TENSORS if field not in found.unread}
    raw = found.raw
    if not same_quantization(name, other):
        before = raw.unread if isinstance(raw, PartialConfig) else frozenset()
        raw = PartialConfig(name, _without_storage(raw), _STORAGE | before)
        known |= {"weight_bytes": None, "weights_rounded": False}
    elif found.told("quantization") is not None:
        known |= {key: found.told(key) for key in ("quantization", "quantization_config")}
    return from_config(name, raw, None, **known, origin=origin)


def _without_storage(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config and its parts without what says how the weights are stored."""
    return {
        key: _without_storage(value) if isinstance(value, dict) else value
        for key, value in config.items()
        if key not in _STORAGE
    }


_STORAGE = frozenset({"quantization_config", "compression_config", "torch_dtype", "dtype"})
_OF_TENSORS = (
    *("mtp_weights", "has_token_map", "tokenizer_size", "tokenizer_digest"),
    *("weight_bytes", "weights_rounded"),
)


def _doubt(found: Checkpoint) -> str | None:
    return found.origin.doubt if found.origin is not None else None


def _provenance(directory: Path, sources: Sources, environment: Mapping[str, str]) -> Provenance:
    given = any(directory.is_relative_to(one) for one in sources.directories)
    cached = directory.is_relative_to(hub_cache(environment))
    return Provenance.CACHE if cached and not given else Provenance.DIRECTORY


def _nowhere(name: str, sources: Sources, revision: str | None) -> str:
    on_hub = HUB_NAME.match(name) is not None
    where = ["the Hugging Face cache" if on_hub else "a directory of that name"]
    where += [str(directory) for directory in sources.directories]
    wanted = "" if revision is None else f" of its revision {revision}"
    listed = ", and it is not in speclaunch's index" if on_hub and sources.index else ""
    return f"no config.json{wanted} in {' or '.join(where)}{listed}"


def _remedy(name: str, sources: Sources) -> str:
    """What would make a checkpoint known; a listed one that it seems to be is only named."""
    told = "give --models DIR" + ("" if sources.online else ", or --online")
    sibling = seems_to_be(name) if sources.index is not None else None
    if sibling is None:
        return told
    return f"it seems to be {sibling}: if so give --assume {name}={sibling}; else {told}"
