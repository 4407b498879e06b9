"""A proof on disk: what the speculative server answered, and in the end what was shown.

An interrupted proof goes on where it was: the plain server judges answers that were kept.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, ValidationError, convert, to_builtins

from speclaunch.core import speclaunch_home
from speclaunch.measure.prove.answers import ProofAnswer
from speclaunch.serving import kept_work

FILE = "proof.json"
VERSION = 1


class Heard(Struct, frozen=True):
    """What the speculative server answered so far: the greedy answers of each concurrency that is
    complete, and the samples."""

    greedy: Mapping[int, Sequence[ProofAnswer]]
    samples: Sequence[Sequence[ProofAnswer]] = ()

    @property
    def count(self) -> int:
        """How many answers these are."""
        return sum(map(len, (*self.greedy.values(), *self.samples)))


class StoredProof(Struct):
    """One proof on disk. `key` says what is proven: the same one goes on."""

    directory: Path
    key: str
    about: Mapping[str, Any]
    heard: Heard

    def add(self, heard: Heard) -> None:
        """Store what was heard so far. Raises InputError where that cannot be done."""
        self.heard = heard
        self.write()

    def write(self, result: Mapping[str, Any] | None = None) -> None:
        """Write all of it, whole. Raises InputError where that cannot be done."""
        document = {
            "version": VERSION,
            "key": self.key,
            "updated": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "about": dict(self.about),
            **to_builtins(self.heard),
            "result": result,
        }
        kept_work.write(self.directory / FILE, document)


def directory() -> Path:
    """Where proofs are kept."""
    return speclaunch_home() / "proofs"


def begin_proof(name: str, key: str, about: Mapping[str, Any], *, fresh: bool) -> StoredProof:
    """The newest unfinished proof of the same key, or a new one. Raises InputError.

    A file of another form is left alone.
    """
    files = [] if fresh else sorted(directory().glob(f"*/{FILE}"), reverse=True)
    for folder, document in kept_work.unfinished(files, key):
        try:
            return StoredProof(folder, key, about, convert(document, Heard, strict=False))
        except ValidationError:
            continue
    begun = StoredProof(kept_work.new_folder(directory(), name), key, about, Heard({}))
    if fresh:  # from now on it is what is gone on with, not an older one
        begun.write()
    return begun
