"""A speculative answer against the plain server: the same, a numerical tie, or wrong.

Greedy speculation is lossless up to numerics: a batch of another shape sums in another order, and
two tokens whose logits are as good as equal may change places. What tells both apart is the plain
server's own logprob of the token that was given and of the one that it would have given: within
the noise it is a tie, and the answer is judged on from there, given its own tokens; beyond it the
answer is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from speclaunch.proving.answers import Answer, Scored
from speclaunch.record import record

_FLOOR = {"float32": 1e-3, "float16": 0.05, "bfloat16": 0.25}
"""Nats between two logits that count as equal: two to three times the spacing of numbers of the
size of usual logits, 16 to 32 (0.125 for bfloat16, 0.016 for float16); of float32 what another
order of a sum makes."""
_UNKNOWN_FLOOR = 0.25
_TIMES_SEEN = 3.0


class Kind(StrEnum):
    """How an answer compares."""

    SAME = "same"
    TIE = "tie"
    WRONG = "wrong"


@record
class Verdict:
    """Of one answer. `position`: the first token that differs (wrong: the first that is wrong)."""

    kind: Kind
    position: int | None = None
    gap: float = 0.0
    """Nats by which the plain server prefers its own token there."""
    got: int | None = None
    expected: int | None = None
    got_text: str | None = None
    expected_text: str | None = None


def noise(dtype: str, plain: Sequence[Answer], scored: Sequence[Sequence[Scored]]) -> float:
    """Nats within which two tokens count as equal: by the dtype, and by how far the plain server's
    logprobs of its own answers lie apart when they are worked out token by token and at once."""
    seen = [
        abs(one - other.logprob)
        for answer, scores in zip(plain, scored, strict=True)
        for one, other in zip(answer.logprobs, scores, strict=True)
    ]
    return max(_FLOOR.get(dtype, _UNKNOWN_FLOOR), _TIMES_SEEN * max(seen, default=0.0))


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """The first index at which they differ; None where they are the same."""
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other)) if len(one) != len(other) else None


def judged(
    answer: Answer, plain: Answer, scores: Sequence[Scored] | None, tolerance: float
) -> Verdict:
    """`scores`: of the answer by the plain server; needed where the two differ."""
    at = first_difference(answer.ids, plain.ids)
    if at is None:
        return Verdict(Kind.SAME)
    if scores is None or len(answer.ids) != len(plain.ids):
        return Verdict(Kind.WRONG, at)
    for index in range(at, len(scores)):
        one = scores[index]
        if one.gap > tolerance:
            return Verdict(Kind.WRONG, index, one.gap, one.token, one.best, one.text, one.best_text)
    first = scores[at]
    return Verdict(Kind.TIE, at, first.gap, first.token, plain.ids[at], first.text)
