"""Answers of a proof: send the requests, and collect and store the answers.

An interrupted proof resumes with the stored answers, which the plain server scores.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from speclaunch.core import LaunchError
from speclaunch.serving import unfinished_work

_SECONDS = 600.0
_SHOWN = 300
_MASKED = 0
"""Token ID reported in place of the last ID of the vocabulary and all higher IDs.

The engine treats these IDs as image padding (logprob_result_processor.py
`_process_input_token_logprobs`, 0.5.23).
"""


class Client(Protocol):
    """Server client for one thread, such as `EngineClient`."""

    def post(self, path: str, body: dict[str, Any], timeout: float) -> Any:
        """Send a JSON document; return an answer with `status_code`, `text` and `json()`."""


class ProofPrompt(Struct, frozen=True):
    """A prompt, and the number of tokens in its answer."""

    text: str
    tokens: int


class ProofAnswer(Struct, frozen=True):
    """Tokens that a server generated, with the server's `logprobs` if requested."""

    ids: tuple[int, ...]
    prompt_tokens: int
    verify_steps: int = 0
    logprobs: tuple[float, ...] = ()

    @property
    def accept_length(self) -> float | None:
        return len(self.ids) / self.verify_steps if self.verify_steps else None


class Scored(Struct, frozen=True):
    """Score of a token by the plain server: its logprob and the logprob of the best token."""

    token: int
    logprob: float
    best: int
    best_logprob: float
    text: str | None = None
    """Text of the token; None if the server omits it. `best_text`: text of the best token."""
    best_text: str | None = None

    @property
    def gap(self) -> float:
        """Logprob difference from the best token; 0 if this token is the best."""
        return 0.0 if self.token == self.best else max(0.0, self.best_logprob - self.logprob)


class ProofServer:
    """Server that answers several requests concurrently.

    Methods raise LaunchError for an invalid answer.
    """

    def __init__(
        self, make: Any, concurrency: int, tick: Callable[[], None] = lambda: None
    ) -> None:
        """Store the settings without connecting.

        `make` returns a new client for each thread. Each thread calls `tick` after every answer.
        """
        self._make = make
        self._concurrency = concurrency
        self._tick = tick

    def answers(
        self, questions: Sequence[ProofPrompt], *, logprobs: bool, temperature: float = 0.0
    ) -> list[ProofAnswer]:
        """Return an answer to each question, in order."""

        def body(prompt: ProofPrompt) -> dict[str, Any]:
            sampling = {
                "max_new_tokens": prompt.tokens,
                "temperature": temperature,
                "ignore_eos": True,
            }
            return {"text": prompt.text, "sampling_params": sampling, "return_logprob": logprobs}

        found = self._all([body(prompt) for prompt in questions])
        with _readable():
            return [_answer(response) for response in found]

    def prompt_ids(self, questions: Sequence[ProofPrompt]) -> list[tuple[int, ...]]:
        """Return each prompt's token IDs, as encoded by the server."""
        own = {"return_prompt_token_ids": True}  # if supported, else with logprobs
        bodies = [{"text": prompt.text, **own, **_scoring(0)} for prompt in questions]
        found = self._all(bodies)
        with _readable():
            return [
                tuple(
                    answer.get("prompt_token_ids") or (int(entry[1]) for entry in _inputs(answer))
                )
                for answer in found
            ]

    def scores(
        self, pairs: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]
    ) -> list[list[Scored]]:
        """Return this server's scores of each answer's tokens.

        `pairs`: prompt and answer, both as token IDs.
        """
        bodies = [
            {"input_ids": [*prompt, *answer], "top_logprobs_num": 1, **_scoring(len(prompt) - 1)}
            for prompt, answer in pairs
        ]
        found = []
        for response, (_, answer) in zip(self._all(bodies), pairs, strict=True):
            with _readable():
                best = response["meta_info"]["input_top_logprobs"]
                pairs = list(zip(_inputs(response), best, strict=True))[-len(answer) :]
                scored = [_scored(token, *pair) for token, pair in zip(answer, pairs, strict=True)]
            found.append(scored)
        return found

    def _all(self, bodies: Sequence[dict[str, Any]]) -> list[Mapping[str, Any]]:
        over = threading.Event()

        def ask(some: Sequence[dict[str, Any]]) -> list[Mapping[str, Any]]:
            responses = []
            with self._make() as client:
                for body in some:
                    if over.is_set():
                        break
                    responses.append(_good(client.post("/generate", body, _SECONDS)))
                    self._tick()
            return responses

        # each thread has one connection and sends its questions in turn
        parts = [bodies[number :: self._concurrency] for number in range(self._concurrency)]
        pool = ThreadPoolExecutor(self._concurrency)
        try:
            futures = [pool.submit(ask, part) for part in parts if part]
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()
        finally:  # after Ctrl-C or an error, send no more requests and await no answers
            over.set()
            pool.shutdown(wait=False, cancel_futures=True)
        found = [future.result() for future in futures]
        count = self._concurrency
        return [found[number % count][number // count] for number in range(len(bodies))]


def _scoring(start: int) -> dict[str, Any]:
    return {
        "sampling_params": {"max_new_tokens": 1, "temperature": 0, "ignore_eos": True},
        "return_logprob": True,
        "return_text_in_logprobs": True,
        "logprob_start_len": start,
    }


def _good(answer: Any) -> Mapping[str, Any]:
    if answer.status_code != 200:
        text = " ".join(answer.text.split())[:_SHOWN]
        raise LaunchError(f"/generate answered {answer.status_code}: {text}")
    found: Mapping[str, Any] = answer.json()
    return found


@contextmanager
def _readable() -> Iterator[None]:
    """Run the block; raise LaunchError if an answer does not have SGLang's format."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise LaunchError(
            f"/generate's answer is not in SGLang's format: {type(error).__name__}: "
            f"{str(error)[:_SHOWN]}"
        ) from None


def _inputs(response: Mapping[str, Any]) -> list[Any]:
    """Return (logprob, id, text) of each token of the prompt.

    Source: io_struct.py `return_text_in_logprobs`, tokenizer_manager.py `detokenize_logprob_tokens`
    (0.5.23).
    """
    return list(response["meta_info"]["input_token_logprobs"])


def _scored(token: int, own: Sequence[Any], tops: Sequence[Sequence[Any]]) -> Scored:
    """Return the score of `token`. Raises LaunchError if the server scored another token."""
    reported, top = int(own[1]), tops[0]
    if reported not in (token, _MASKED):
        raise LaunchError(f"the server scored token {reported} instead of {token}")
    text = own[2] if reported == token else None
    return Scored(token, float(own[0] or 0.0), int(top[1]), float(top[0]), text, top[2])


def _answer(response: Mapping[str, Any]) -> ProofAnswer:
    meta = response["meta_info"]
    logprobs = meta.get("output_token_logprobs") or []
    ids = response.get("output_ids")
    if ids is None:  # ids come only with their logprobs
        ids = [entry[1] for entry in logprobs]
    return ProofAnswer(
        tuple(map(int, ids)),
        int(meta["prompt_tokens"]),
        int(meta.get("spec_verify_ct") or 0),
        tuple(float(entry[0]) for entry in logprobs),
    )


PROOF = "proof"
"""Name under which the progress of a proof is stored."""


class StoredAnswers(unfinished_work.Progress, frozen=True):
    """Answers of the speculative server so far.

    They include the greedy answers at each completed concurrency, and the samples.
    """

    greedy: Mapping[int, Sequence[ProofAnswer]]
    samples: Sequence[Sequence[ProofAnswer]] = ()

    @property
    def saved(self) -> str:
        count = sum(map(len, (*self.greedy.values(), *self.samples)))
        return f"{count} answers" if count else ""


StoredProof: TypeAlias = unfinished_work.StoredWork[StoredAnswers]
"""A proof on disk. `key` identifies its requests and both servers."""
