"""Gathers the facts of a deployment, each checkpoint read once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.facts.facts import Facts, UnknownFact
from speclaunch.facts.find_checkpoint import find_checkpoint
from speclaunch.facts.hardware import Hardware
from speclaunch.facts.runtime import Runtime


def gather(
    target: str | None,
    draft: str | None,
    *,
    model_dirs: Sequence[Path] = (),
    online: bool = False,
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
    directories = tuple(model_dirs)
    found = [
        None if name is None else _found(name, directories, online, tokenizers, revision)
        for name, revision in ((target, target_revision), (draft, draft_revision))
    ]
    known = [one if isinstance(one, Checkpoint) else None for one in found]
    unknown = dict.fromkeys(one for one in found if isinstance(one, UnknownFact))
    return Facts(known[0], known[1], hardware, runtime, tuple(unknown))


@lru_cache(maxsize=1024)
def _found(
    name: str, model_dirs: tuple[Path, ...], online: bool, tokenizers: bool, revision: str | None
) -> Checkpoint | UnknownFact:
    return find_checkpoint(name, model_dirs, online=online, tokenizer=tokenizers, revision=revision)
