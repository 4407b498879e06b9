"""What every source on this machine knows of one checkpoint, the nearest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.facts.facts import UnknownFact
from speclaunch.facts.find_checkpoint import find_checkpoint, kept_facts
from speclaunch.facts.origin import Origin
from speclaunch.facts.sources import Sources
from speclaunch.record import record

_NOT_SHOWN = frozenset({"name", "path", "config", "raw", "origin", "unread", "tensors"})
FACTS = tuple(one.name for one in fields(Checkpoint) if one.name not in _NOT_SHOWN)
"""The facts of a checkpoint, in the order in which they are shown."""


@record
class Known:
    """The facts that count for a checkpoint, and what the other sources know."""

    used: Checkpoint | UnknownFact
    others: tuple[Checkpoint | UnknownFact, ...]
    """Of sources farther away, and of files that cannot be read."""


def known(name: str, sources: Sources) -> Known:
    """Ask every source; what counts is what `lint` and `plan` take."""
    used = find_checkpoint(name, sources, tokenizer=True)
    origin = used.origin if isinstance(used, Checkpoint) else None
    others = [one for one in _each(name, sources) if not _is(one, origin)]
    return Known(used, tuple(one for one in others if one != used))


def told(found: Checkpoint, fact: str) -> Any:
    """A fact; None where the source does not tell it."""
    value = found.told(fact)
    return None if value in ((), {}) else value


def _each(name: str, sources: Sources) -> Iterator[Checkpoint | UnknownFact]:
    near = find_checkpoint(name, Sources(sources.directories), tokenizer=True)
    if isinstance(near, Checkpoint):
        yield near
    files = [Sources(repository=(folder,)) for folder in sources.repository]
    for kept in (kept_facts(name, one) for one in (*files, Sources(index=sources.index))):
        if kept is not None:
            yield kept


def _is(found: Checkpoint | UnknownFact, origin: Origin | None) -> bool:
    return isinstance(found, Checkpoint) and found.origin == origin
