"""A proof on disk: answers of the speculative server, and finally the result.

An interrupted proof continues: the plain server scores the stored answers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, ValidationError, convert, to_builtins

from speclaunch.core import speclaunch_home
from speclaunch.measure.prove.answers import ProofAnswer
from speclaunch.serving import unfinished_work

FILE = "proof.json"
VERSION = 1


class StoredAnswers(Struct, frozen=True):
    """Answers of the speculative server so far.

    The greedy answers of each complete concurrency, and the samples.
    """

    greedy: Mapping[int, Sequence[ProofAnswer]]
    samples: Sequence[Sequence[ProofAnswer]] = ()

    @property
    def count(self) -> int:
        """Number of answers."""
        return sum(map(len, (*self.greedy.values(), *self.samples)))


class StoredProof(Struct):
    """A proof on disk. `key` identifies the proven work; the same key continues it."""

    directory: Path
    key: str
    about: Mapping[str, Any]
    answers: StoredAnswers

    def add(self, answers: StoredAnswers) -> None:
        """Store the answers so far. Raises InputError if writing fails."""
        self.answers = answers
        self.write()

    def write(self, result: Mapping[str, Any] | None = None) -> None:
        """Replace the stored file atomically. Raises InputError if writing fails."""
        document = {
            "version": VERSION,
            "key": self.key,
            "updated": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "about": dict(self.about),
            **to_builtins(self.answers),
            "result": result,
        }
        unfinished_work.write(self.directory / FILE, document)


def directory() -> Path:
    """Return the directory of stored proofs."""
    return speclaunch_home() / "proofs"


def stored_proofs() -> list[Path]:
    """Return the files of stored proofs, oldest first."""
    return sorted(directory().glob(f"*/{FILE}"))


def begin_proof(name: str, key: str, about: Mapping[str, Any], *, fresh: bool) -> StoredProof:
    """Return the newest unfinished proof of the same key, or a new one. Raises InputError.

    Files of another format are ignored.
    """
    files = [] if fresh else reversed(stored_proofs())
    for folder, document in unfinished_work.unfinished(files, key):
        try:
            return StoredProof(folder, key, about, convert(document, StoredAnswers, strict=False))
        except ValidationError:
            continue
    begun = StoredProof(
        unfinished_work.new_folder(directory(), name), key, about, StoredAnswers({})
    )
    if fresh:  # a later run continues this proof, not an older one
        begun.write()
    return begun
