"""The same, a tie, or wrong: by what the plain server says of each token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclaunch.measure.prove.answers import ProofAnswer, ProofPrompt, Scored
from speclaunch.measure.prove.proof import (
    AnswerKind,
    AnswerVerdict,
    CheckedAnswer,
    Drawn,
    Proof,
    compare,
    first_difference,
    noise,
)
from tests.support.loops import rows


def answer(*ids: int, steps: int = 1, logprobs: tuple[float, ...] = ()) -> ProofAnswer:
    return ProofAnswer(ids, 5, steps, logprobs)


def scored(*gaps: float) -> list[Scored]:
    """Tokens 0, 1, 2, …; where there is a gap the server prefers token 99."""
    return [Scored(index, -1.0 - gap, 99 if gap else index, -1.0) for index, gap in enumerate(gaps)]


def test_the_same_tokens_need_no_score() -> None:
    assert compare(answer(1, 2), answer(1, 2), None, 0.1) == AnswerVerdict(AnswerKind.SAME)


def test_as_good_as_equal_is_a_tie() -> None:
    found = compare(answer(0, 1, 2), answer(0, 7, 8), scored(0, 0.05, 0), 0.1)
    assert found == AnswerVerdict(AnswerKind.TIE, 1, pytest.approx(0.05), 1, 7)


def test_a_token_that_the_plain_server_would_not_have_given_is_wrong() -> None:
    found = compare(answer(0, 1, 2), answer(0, 7, 8), scored(0, 0.5, 0), 0.1)
    assert (found.kind, found.position, found.got, found.expected) == (AnswerKind.WRONG, 1, 1, 99)


def test_what_follows_a_tie_is_judged_too() -> None:
    found = compare(answer(0, 1, 2), answer(0, 7, 8), scored(0, 0.05, 3.0), 0.1)
    assert (found.kind, found.position) == (AnswerKind.WRONG, 2)


def test_an_answer_of_another_length_is_wrong() -> None:
    found = compare(answer(0, 1), answer(0, 1, 2), scored(0, 0), 0.1)
    assert found == AnswerVerdict(AnswerKind.WRONG, 2)


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_the_first_difference_is_the_first(one: list[int], other: list[int]) -> None:
    at = first_difference(one, other)
    if at is None:
        assert one == other
    else:
        assert one[:at] == other[:at]
        assert one[at : at + 1] != other[at : at + 1]


@rows("dtype, floor", [("float32", 1e-3), ("bfloat16", 0.25), ("float16", 0.05), ("", 0.25)])
def test_noise_is_at_least_that_of_the_dtype(dtype: str, floor: float) -> None:
    assert noise(dtype, [answer(0, logprobs=(-1.0,))], [scored(0)]) == floor


def test_noise_is_what_the_server_shows() -> None:
    plain = [answer(0, 1, logprobs=(-1.0, -1.4))]
    assert noise("float32", plain, [scored(0, 0)]) == pytest.approx(1.2)


def proof(*kinds: AnswerKind, steps: int = 4, sampled: Drawn | None = None) -> Proof:
    one = [CheckedAnswer(ProofPrompt("p", 8), 1, AnswerVerdict(kind), 8, steps) for kind in kinds]
    return Proof(tuple(one), 0.1, sampled)


def test_a_proof_is_all_or_nothing() -> None:
    assert proof(AnswerKind.SAME, AnswerKind.TIE).is_lossless
    assert not proof(AnswerKind.SAME, AnswerKind.WRONG).is_lossless
    assert not proof().is_lossless
    assert not proof(AnswerKind.SAME, steps=0).is_lossless


def test_samples_that_differ_are_no_proof() -> None:
    assert not proof(AnswerKind.SAME, sampled=Drawn(0.0005, 24, 2000)).is_lossless
    assert proof(AnswerKind.SAME, sampled=Drawn(0.02, 24, 2000)).is_lossless


def test_the_acceptance_length_is_that_of_all_tokens_and_steps() -> None:
    some = [
        CheckedAnswer(ProofPrompt("p", 8), 2, AnswerVerdict(AnswerKind.SAME), 8, steps)
        for steps in (2, 6, 0)
    ]
    (level,) = Proof(tuple(some), 0.1).levels
    assert (level.accept_length, level.unspeculated, level.requests) == (2.0, 1, 3)
