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
) -> Facts:
    """The facts of a target and a draft (None: not named, or not known) and of what they run on.

    `tokenizers`: read their vocabularies, too; only STANDALONE compares them.
    """
    unknown: list[UnknownFact] = []

    def checkpoint(name: str | None) -> Checkpoint | None:
        if name is None:
            return None
        found = _found(name, tuple(model_dirs), online, tokenizers)
        if isinstance(found, UnknownFact):
            unknown.append(found)
            return None
        return found

    return Facts(checkpoint(target), checkpoint(draft), hardware, runtime, tuple(unknown))


@lru_cache(maxsize=1024)
def _found(
    name: str, model_dirs: tuple[Path, ...], online: bool, tokenizers: bool
) -> Checkpoint | UnknownFact:
    return find_checkpoint(name, model_dirs, online=online, tokenizer=tokenizers)
