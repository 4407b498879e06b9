"""What servers are asked for a proof, and what they answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, Protocol

from msgspec import Struct

from speclaunch.core import LaunchError

_SECONDS = 600.0
_SHOWN = 300
_MASKED = 0
"""What is said for the last token of the vocabulary, and for those beyond: they are taken for
padding of images (logprob_result_processor.py `_process_input_token_logprobs`, 0.5.23)."""


class Client(Protocol):
    """What a server is asked through: `launch.client.EngineClient`, one for each thread."""

    def post(self, path: str, body: dict[str, Any], timeout: float) -> Any:
        """Send a JSON document; an answer with `status_code`, `text` and `json()`."""


class ProofPrompt(Struct, frozen=True):
    """A prompt, and how many tokens the answer has."""

    text: str
    tokens: int


class ProofAnswer(Struct, frozen=True):
    """What a server generated. `logprobs` are its own of these tokens, where they were asked for.

    `verify_steps`: how often a draft was verified on the way.
    """

    ids: tuple[int, ...]
    prompt_tokens: int
    verify_steps: int = 0
    logprobs: tuple[float, ...] = ()

    @property
    def accept_length(self) -> float | None:
        """Tokens a verify step; None where nothing was verified."""
        return len(self.ids) / self.verify_steps if self.verify_steps else None


class Scored(Struct, frozen=True):
    """A token of an answer as the plain server sees it: its logprob, and that of its own choice."""

    token: int
    logprob: float
    best: int
    best_logprob: float
    text: str | None = None
    """What the token stands for, where the server says it; `best_text`: its own choice."""
    best_text: str | None = None

    @property
    def gap(self) -> float:
        """By how much the server's own choice is more likely; 0 where it is this token."""
        return 0.0 if self.token == self.best else max(0.0, self.best_logprob - self.logprob)


class ProofServer:
    """A server that is asked with so many requests at a time. Raises LaunchError for what is no
    answer."""

    def __init__(
        self, make: Any, concurrency: int, tick: Callable[[], None] = lambda: None
    ) -> None:
        """`make` gives a client of its own to each thread; `tick` is told of every answer, by the
        thread that got it."""
        self._make = make
        self._concurrency = concurrency
        self._tick = tick

    def answers(
        self, questions: Sequence[ProofPrompt], *, logprobs: bool, temperature: float = 0.0
    ) -> list[ProofAnswer]:
        """An answer to each question, in their order."""

        def body(one: ProofPrompt) -> dict[str, Any]:
            sampling = {
                "max_new_tokens": one.tokens,
                "temperature": temperature,
                "ignore_eos": True,
            }
            return {"text": one.text, "sampling_params": sampling, "return_logprob": logprobs}

        found = self._all([body(one) for one in questions])
        with _readable():
            return [_answer(said) for said in found]

    def prompt_ids(self, questions: Sequence[ProofPrompt]) -> list[tuple[int, ...]]:
        """The tokens of each prompt, as the server sees them."""
        own = {"return_prompt_token_ids": True}  # where it has that; else beside their logprobs
        bodies = [{"text": one.text, **own, **_scoring(0)} for one in questions]
        found = self._all(bodies)
        with _readable():
            return [
                tuple(said.get("prompt_token_ids") or (int(one[1]) for one in _inputs(said)))
                for said in found
            ]

    def scores(
        self, asked: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]
    ) -> list[list[Scored]]:
        """Each answer as this server sees it, given what comes before: (prompt, answer) in ids."""
        bodies = [
            {"input_ids": [*prompt, *answer], "top_logprobs_num": 1, **_scoring(len(prompt) - 1)}
            for prompt, answer in asked
        ]
        found = []
        for said, (_, answer) in zip(self._all(bodies), asked, strict=True):
            with _readable():
                best = said["meta_info"]["input_top_logprobs"]
                pairs = list(zip(_inputs(said), best, strict=True))[-len(answer) :]
                scored = [_scored(token, *one) for token, one in zip(answer, pairs, strict=True)]
            found.append(scored)
        return found

    def _all(self, bodies: Sequence[dict[str, Any]]) -> list[Mapping[str, Any]]:
        over = threading.Event()

        def ask(some: Sequence[dict[str, Any]]) -> list[Mapping[str, Any]]:
            said = []
            with self._make() as client:
                for body in some:
                    if over.is_set():
                        break
                    said.append(_good(client.post("/generate", body, _SECONDS)))
                    self._tick()
            return said

        # each thread has one connection, and its questions in turn
        parts = [bodies[number :: self._concurrency] for number in range(self._concurrency)]
        pool = ThreadPoolExecutor(self._concurrency)
        try:
            asked = [pool.submit(ask, part) for part in parts if part]
            for one in wait(asked, return_when=FIRST_EXCEPTION).done:
                one.result()
        finally:  # after Ctrl-C or an error nothing more is asked, and no answer waited for
            over.set()
            pool.shutdown(wait=False, cancel_futures=True)
        found = [one.result() for one in asked]
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
        said = " ".join(answer.text.split())[:_SHOWN]
        raise LaunchError(f"/generate answered {answer.status_code}: {said}")
    found: Mapping[str, Any] = answer.json()
    return found


@contextmanager
def _readable() -> Iterator[None]:
    """An answer of another shape than SGLang's is a LaunchError."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise LaunchError(
            f"/generate answered in another form than SGLang: {type(error).__name__}: "
            f"{str(error)[:_SHOWN]}"
        ) from None


def _inputs(said: Mapping[str, Any]) -> list[Any]:
    """(logprob, id, text) of each token of the prompt: io_struct.py `return_text_in_logprobs`,
    tokenizer_manager.py `detokenize_logprob_tokens` (0.5.23)."""
    return list(said["meta_info"]["input_token_logprobs"])


def _scored(token: int, own: Sequence[Any], tops: Sequence[Sequence[Any]]) -> Scored:
    """`token` is what was asked for. Raises LaunchError where the server says another one."""
    said, top = int(own[1]), tops[0]
    if said not in (token, _MASKED):
        raise LaunchError(f"the server scores token {said}, and was asked for {token}")
    text = own[2] if said == token else None
    return Scored(token, float(own[0] or 0.0), int(top[1]), float(top[0]), text, top[2])


def _answer(said: Mapping[str, Any]) -> ProofAnswer:
    meta = said["meta_info"]
    logprobs = meta.get("output_token_logprobs") or []
    ids = said.get("output_ids")
    if ids is None:  # not told apart from their logprobs
        ids = [entry[1] for entry in logprobs]
    return ProofAnswer(
        tuple(map(int, ids)),
        int(meta["prompt_tokens"]),
        int(meta.get("spec_verify_ct") or 0),
        tuple(float(entry[0]) for entry in logprobs),
    )
