"""A proof on disk: answers of the speculative server, and finally the result.

An interrupted proof continues: the plain server scores the stored answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from speclaunch.core import speclaunch_home
from speclaunch.measure.prove.answers import ProofAnswer
from speclaunch.serving import unfinished_work

FILE = "proof.json"


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


class StoredProof(unfinished_work.StoredWork[StoredAnswers]):
    """A proof on disk. `key` identifies the proven work."""

    @property
    def answers(self) -> StoredAnswers:
        """Answers so far."""
        return self.progress


def directory() -> Path:
    """Return the directory of stored proofs."""
    return speclaunch_home() / "proofs"


def stored_proofs() -> list[Path]:
    """Return the files of stored proofs, oldest first."""
    return sorted(directory().glob(f"*/{FILE}"))


def begin_proof(name: str, key: str, about: Mapping[str, Any], *, fresh: bool) -> StoredProof:
    """Return the newest unfinished proof of the same key, or a new one. Raises InputError."""
    return StoredProof.begin(directory(), FILE, name, key, about, StoredAnswers({}), fresh=fresh)
