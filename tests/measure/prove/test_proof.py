"""A proof from what two servers answer over HTTP's own form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from speclaunch.core.errors import LaunchError
from speclaunch.measure.prove.answers import ProofPrompt, ProofServer
from speclaunch.measure.prove.proof import (
    AnswerKind,
    Proof,
    prove_answers,
    reference,
    sampled,
    samples_agree,
)

VOCABULARY = 50
QUESTIONS = [ProofPrompt(text, 8) for text in ("a", "bc", "def", "ghij", "klmno")]


@dataclass
class Reply:
    body: Any
    status_code: int = 200

    @property
    def text(self) -> str:
        return str(self.body)

    def json(self) -> Any:
        return self.body


class Cycle:
    """A server whose next token is always the one after; `error` breaks an answer."""

    def __init__(self, error: Callable[[list[int]], list[int]] = lambda ids: ids) -> None:
        self.error = error
        self.steps = 3

    def __enter__(self) -> Cycle:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def post(self, path: str, body: dict[str, Any], timeout: float) -> Reply:
        assert path == "/generate"
        prompt = body.get("input_ids") or [ord(one) % VOCABULARY for one in body["text"]]
        count = body["sampling_params"]["max_new_tokens"]
        ids = self.error([(prompt[-1] + 1 + number) % VOCABULARY for number in range(count)])
        meta: dict[str, Any] = {"prompt_tokens": len(prompt), "spec_verify_ct": self.steps}
        if body["return_logprob"]:
            meta["output_token_logprobs"] = [[-0.5, one, None] for one in ids]
        if "logprob_start_len" in body:
            start = body["logprob_start_len"]
            meta["input_token_logprobs"] = [
                [None if at == 0 else self.logprob(prompt, at), *self.shown(prompt[at])]
                for at in range(start, len(prompt))
            ]
            meta["input_top_logprobs"] = [
                None
                if at == 0
                else [[-0.5, best := (prompt[at - 1] + 1) % VOCABULARY, f"<{best}>"]]
                for at in range(start, len(prompt))
            ]
        asked = {"prompt_token_ids": prompt} if body.get("return_prompt_token_ids") else {}
        return Reply({"output_ids": ids, "meta_info": meta, **asked})

    @staticmethod
    def shown(token: int) -> tuple[int, str]:
        """As SGLang shows tokens of a prompt: the last one of the vocabulary as 0."""
        token = token if token < VOCABULARY - 1 else 0
        return token, f"<{token}>"

    @staticmethod
    def logprob(ids: list[int], at: int) -> float:
        right = ids[at] == (ids[at - 1] + 1) % VOCABULARY
        return -0.5 if right else -5.0


def proven(speculative: Cycle, levels: tuple[int, ...] = (1, 3)) -> Proof:
    found = {
        level: ProofServer(lambda: speculative, level).answers(QUESTIONS, logprobs=False)
        for level in levels
    }
    plain = Cycle()

    def server(level: int) -> ProofServer:
        return ProofServer(lambda: plain, level)

    known = reference(server, QUESTIONS, 3, "")
    return Proof(prove_answers(server, known, found), known.tolerance)


def test_the_same_server_is_lossless() -> None:
    found = proven(Cycle())
    assert found.is_lossless
    assert (found.counts.same, found.tolerance) == (10, 0.25)
    assert [(one.concurrency, one.requests, one.accept_length) for one in found.levels] == [
        (1, 5, 8 / 3),
        (3, 5, 8 / 3),
    ]


@pytest.mark.parametrize("at", [0, 3, 7])
def test_a_wrong_token_is_found_wherever_it_is(at: int) -> None:
    def wrong(ids: list[int]) -> list[int]:
        return [*ids[:at], (ids[at] + 9) % VOCABULARY, *ids[at + 1 :]] if len(ids) > 1 else ids

    found = proven(Cycle(wrong))
    assert not found.is_lossless
    assert {one.verdict.kind for one in found.answers} == {AnswerKind.WRONG}
    assert {one.verdict.position for one in found.answers} == {at}
    first = found.wrong[0].verdict
    assert first.got is not None and first.expected is not None
    assert (first.got - first.expected) % VOCABULARY == 9
    assert (first.got_text, first.expected_text) == (f"<{first.got}>", f"<{first.expected}>")
    assert first.gap == 4.5


def test_a_missing_token_is_found() -> None:
    assert proven(Cycle(lambda ids: ids[:-1] if len(ids) > 1 else ids)).counts.wrong == 10


def test_answers_without_drafts_prove_nothing() -> None:
    server = Cycle()
    server.steps = 0
    found = proven(server)
    assert (found.unspeculated, found.is_lossless) == (10, False)
    assert [(one.unspeculated, one.accept_length) for one in found.levels] == [(5, None)] * 2


def test_an_empty_answer_is_wrong() -> None:
    found = proven(Cycle(lambda ids: [] if len(ids) > 1 else ids))
    assert {(one.verdict.kind, one.verdict.position) for one in found.answers} == {
        (AnswerKind.WRONG, 0)
    }


def test_only_a_batch_may_be_wrong() -> None:
    right, wrong = Cycle(), Cycle(lambda ids: [*ids[:-1], 0] if len(ids) > 1 else ids)
    heard = {
        1: ProofServer(lambda: right, 1).answers(QUESTIONS, logprobs=False),
        4: ProofServer(lambda: wrong, 4).answers(QUESTIONS, logprobs=False),
    }

    def server(level: int) -> ProofServer:
        return ProofServer(Cycle, level)

    known = reference(server, QUESTIONS, 4, "float32")
    proof = Proof(prove_answers(server, known, heard), known.tolerance)
    assert [one.answers.wrong for one in proof.levels] == [0, 5]
    few = prove_answers(server, known.first(2), {4: heard[4][:2]})
    assert few == proof.answers[5:7]


def test_the_last_token_of_the_vocabulary_is_scored_as_itself() -> None:
    last = VOCABULARY - 1
    found = proven(Cycle(lambda ids: [last] * len(ids) if len(ids) > 1 else ids))
    first = found.wrong[0].verdict
    assert (first.got, first.got_text) == (last, None)
    server = ProofServer(Cycle, 1)
    assert server.prompt_ids([ProofPrompt("c1", 1)]) == [(ord("c") % VOCABULARY, last)]


def test_a_server_that_scores_other_tokens_is_told() -> None:
    class Other(Cycle):
        @staticmethod
        def shown(token: int) -> tuple[int, str]:
            return 7, "<7>"

    with pytest.raises(LaunchError, match="scored token 7 instead of 30"):
        ProofServer(Other, 1).scores([((1, 2), (30,))])


def test_an_error_of_the_server_is_told() -> None:
    class Failing(Cycle):
        def post(self, path: str, body: dict[str, Any], timeout: float) -> Reply:
            return Reply("scheduler died", 500)

    with pytest.raises(LaunchError, match="answered 500: scheduler died"):
        proven(Failing())


def test_the_first_error_ends_all_questions() -> None:
    class Failing(Cycle):
        posts = 0

        def post(self, path: str, body: dict[str, Any], timeout: float) -> Reply:
            Failing.posts += 1
            return Reply("scheduler died", 500)

    with pytest.raises(LaunchError):
        ProofServer(Failing, 3).answers(QUESTIONS * 20, logprobs=False)
    assert Failing.posts <= 3


def test_every_answer_is_told() -> None:
    ticks: list[int] = []
    server = ProofServer(Cycle, 3, lambda: ticks.append(1))
    answers = server.answers(QUESTIONS, logprobs=False)
    assert len(ticks) == len(answers) == 5
    assert [one.prompt_tokens for one in answers] == [1, 2, 3, 4, 5]  # in the questions' order


def test_fewer_questions_than_connections() -> None:
    assert len(ProofServer(Cycle, 16).answers(QUESTIONS[:2], logprobs=False)) == 2
    assert ProofServer(Cycle, 16).answers([], logprobs=False) == []


@pytest.mark.thorough
def test_samples_are_compared_from_the_second_token_on() -> None:
    server = ProofServer(Cycle, 4)
    mine = sampled(server, QUESTIONS[:2], 12)
    assert [len(one) for one in mine] == [12, 12]
    agree = samples_agree(mine, mine)
    assert (agree.positions, agree.probability) == (2 * 7, 1.0)
    first = sampled(ProofServer(lambda: Cycle(lambda ids: [45, *ids[1:]]), 1), QUESTIONS[:2], 12)
    assert samples_agree(mine, first).probability == 1.0  # it comes without a draft
    other = sampled(ProofServer(lambda: Cycle(lambda ids: [45] * len(ids)), 1), QUESTIONS[:2], 12)
    found = samples_agree(mine, other)
    assert found.probability < 0.001
    assert Proof((), 0.1, found).samples_differ
