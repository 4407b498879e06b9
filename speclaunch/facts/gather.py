"""Gathers the facts of a deployment, each checkpoint read once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speclaunch import reads
from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.facts.facts import Facts, UnknownFact
from speclaunch.facts.find_checkpoint import find_checkpoint
from speclaunch.facts.hardware import Hardware
from speclaunch.facts.model_pairs import candidates_for
from speclaunch.facts.sources import NOWHERE_ELSE, Sources

if TYPE_CHECKING:
    from speclaunch.facts.runtime import Runtime


def gather(
    target: str | None,
    draft: str | None,
    *,
    sources: Sources = NOWHERE_ELSE,
    tokenizers: bool = False,
    hardware: Hardware | None = None,
    runtime: Runtime | None = None,
    target_revision: str | None = None,
    draft_revision: str | None = None,
) -> Facts:
    """The facts of a target and a draft (None: not named, or not known) and of what they run on.

    `tokenizers`: read their vocabularies, too; only STANDALONE compares them. What is read is
    kept for as long as this process runs: a checkpoint that many files name is read once.
    """
    found = [
        None if name is None else _found(name, sources, tokenizers, revision)
        for name, revision in ((target, target_revision), (draft, draft_revision))
    ]
    known = [one if isinstance(one, Checkpoint) else None for one in found]
    unknown = dict.fromkeys(one for one in found if isinstance(one, UnknownFact))
    made = () if target is None or sources.index is None else candidates_for(target)
    return Facts(known[0], known[1], hardware, runtime, tuple(unknown), made)


@reads.remembered(1024)
def _found(
    name: str, sources: Sources, tokenizers: bool, revision: str | None
) -> Checkpoint | UnknownFact:
    return find_checkpoint(name, sources, tokenizer=tokenizers, revision=revision)
