"""Proof on disk: answers of the speculative server, and finally the result.

An interrupted proof continues; the plain server scores the stored answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from speclaunch.measure.prove.answers import ProofAnswer
from speclaunch.serving import unfinished_work

PROOF = "proof"
"""Kind of stored work."""


class StoredAnswers(unfinished_work.Progress, frozen=True):
    """Answers of the speculative server so far.

    They include the greedy answers at each completed concurrency, and the samples.
    """

    greedy: Mapping[int, Sequence[ProofAnswer]]
    samples: Sequence[Sequence[ProofAnswer]] = ()

    @property
    def saved(self) -> str:
        """Number of answers as text; empty for none."""
        count = sum(map(len, (*self.greedy.values(), *self.samples)))
        return f"{count} answers" if count else ""


StoredProof: TypeAlias = unfinished_work.StoredWork[StoredAnswers]
"""A proof on disk. `key` identifies the proven work."""
