"""A proof on disk: what the speculative server answered, and in the end what was shown.

An interrupted proof goes on where it was: the plain server judges answers that were kept.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from speclaunch.home import speclaunch_home
from speclaunch.launch import kept_work
from speclaunch.proving.answers import Answer
from speclaunch.record import record

FILE = "proof.json"
VERSION = 1


@record
class Heard:
    """What the speculative server answered so far: the greedy answers of each concurrency that is
    complete, and the samples."""

    greedy: Mapping[int, Sequence[Answer]]
    samples: Sequence[Sequence[Answer]] = ()

    @property
    def count(self) -> int:
        """How many answers these are."""
        return sum(map(len, (*self.greedy.values(), *self.samples)))


@record
class Kept:
    """One proof on disk. `key` says what is proven: the same one goes on."""

    directory: Path
    key: str
    about: Mapping[str, Any]
    heard: Heard

    def write(self, heard: Heard, result: Mapping[str, Any] | None = None) -> None:
        """Write all of it, whole. Raises InputError where that cannot be done."""
        document = {
            "version": VERSION,
            "key": self.key,
            "updated": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "about": dict(self.about),
            "greedy": {
                str(level): [asdict(one) for one in answers]
                for level, answers in heard.greedy.items()
            },
            "samples": [[asdict(one) for one in some] for some in heard.samples],
            "result": dict(result) if result is not None else None,
        }
        kept_work.write(self.directory / FILE, document)


def directory() -> Path:
    """Where proofs are kept."""
    return speclaunch_home() / "proofs"


def key_of(asked: Mapping[str, Any]) -> str:
    """A digest of all that decides what is asked, and whom."""
    return kept_work.digest(asked)


def begin(name: str, key: str, about: Mapping[str, Any], *, fresh: bool) -> Kept:
    """The newest unfinished proof of the same key, or a new one. Raises InputError."""
    files = [] if fresh else sorted(directory().glob(f"*/{FILE}"), reverse=True)
    for folder, document in kept_work.unfinished(files, key):
        heard = _heard(document)
        if heard is not None:
            return Kept(folder, key, about, heard)
    begun = Kept(kept_work.new_folder(directory(), name), key, about, Heard({}))
    if fresh:  # from now on it is what is gone on with, not an older one
        begun.write(begun.heard)
    return begun


def _heard(document: Mapping[str, Any]) -> Heard | None:
    """None for a file of another form: it is left alone."""
    try:
        return Heard(
            {int(level): _answers(some) for level, some in document["greedy"].items()},
            [_answers(some) for some in document["samples"]],
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _answers(some: Sequence[Mapping[str, Any]]) -> list[Answer]:
    return [
        Answer(tuple(one["ids"]), one["prompt_tokens"], one["verify_steps"], ()) for one in some
    ]
