"""Requests of a contract, and a server's answers."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

from msgspec import Struct

from speclaunch.serving import EngineError

Body = Mapping[str, Any]
_SECONDS = 600.0
_GOOD = 200
_SHOWN = 200
_AT_ONCE = 8
_LOADS_PATH = "/v1/loads?include=core"
_ABORT_SECONDS = 60.0
_STARTED_SECONDS = 0.5
_RELEASE_SECONDS = 30.0


class Finish(Struct, frozen=True):
    """Finish reason of an answer: `stop` with the match, `length` or `abort`."""

    type: str
    matched: int | str | None = None

    def __str__(self) -> str:
        return self.type if self.matched is None else f"{self.type} at {self.matched!r}"


class ContractAnswer(Struct, frozen=True):
    """An answer of `/generate`. `error`: refusal message; the other fields are then empty."""

    ids: tuple[int, ...] = ()
    text: str = ""
    finish: Finish = Finish("")
    meta: Mapping[str, Any] = {}
    error: str = ""

    @property
    def is_abort(self) -> bool:
        """True if the server ended the request early."""
        return self.finish.type == "abort"


class ContractServer:
    """A running server. Methods raise EngineError for a missing or unreadable answer."""

    def __init__(self, make: Callable[[], AbstractContextManager[Any]]) -> None:
        """Create the server. `make` returns a new client like `EngineClient`, one per thread."""
        self._make = make
        self.seeds = itertools.count(1)
        """Unused seeds for independent samples of a deterministic server."""

    @cached_property
    def info(self) -> dict[str, Any]:
        """`/server_info`: effective arguments, release and device."""
        with self._make() as client:
            return dict(client.server_info())

    def generate(self, body: Body) -> ContractAnswer:
        """Return the answer to a request for one answer."""
        return self.generate_all(body)[0]

    def generate_all(self, body: Body) -> list[ContractAnswer]:
        """Return all answers to a request; one answer if refused."""
        status, text = self.post("/generate", body)
        if status != _GOOD:
            return [ContractAnswer(error=f"{status}: {_short(text)}")]
        found = _document(text)
        return [_answer(each) for each in (found if isinstance(found, list) and found else [found])]

    def many(self, bodies: Sequence[Body]) -> list[ContractAnswer]:
        """Send requests concurrently; return their answers in order."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(self.generate, bodies))

    def stream(self, body: Body) -> tuple[int, list[Any]]:
        """Return the status and the chunks of a streamed answer."""
        status, text = self.post("/generate", {**body, "stream": True})
        lines = [line[5:].strip() for line in text.splitlines() if line.startswith("data:")]
        return status, [_document(line) for line in lines if line != "[DONE]"]

    def chat(self, path: str, body: Body) -> tuple[int, Any]:
        """Return the status and the JSON of an OpenAI endpoint; text for an error."""
        status, text = self.post(path, {"model": "default", **body})
        return status, _document(text) if status == _GOOD else _short(text)

    def abort(self, body: Body, rid: str) -> ContractAnswer:
        """Send a long request, abort it, and return its answer."""
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(self.generate, {**body, "rid": rid})
            until = time.monotonic() + _ABORT_SECONDS
            time.sleep(_STARTED_SECONDS)
            while not waiting.done() and time.monotonic() < until:
                self.post("/abort_request", {"rid": rid})
                time.sleep(_STARTED_SECONDS / 2)
            return waiting.result()

    def used_tokens(self) -> int | None:
        """Return the KV tokens of running requests; None if the release does not report it.

        Source: 0.5.23 entrypoints/v1_loads.py `get_loads`, `num_used_tokens`.
        """
        with self._make() as client:
            answer = client.get(_LOADS_PATH)
            if answer.status_code != _GOOD:
                return None
            loads = answer.json().get("loads")
        found = [load.get("num_used_tokens") for load in loads or () if isinstance(load, dict)]
        counts = [each for each in found if isinstance(each, int)]
        return sum(counts) if counts else None

    def await_release(self, before: int) -> int:
        """Return the KV tokens in use beyond `before`, after their release or a time limit.

        A server updates its load periodically.
        """
        until = time.monotonic() + _RELEASE_SECONDS
        while True:
            left = max((self.used_tokens() or 0) - before, 0)
            if not left or time.monotonic() > until:
                return left
            time.sleep(_STARTED_SECONDS)

    def lives(self) -> bool:
        """True if `/health` answers 200."""
        with self._make() as client:
            return bool(client.healthy())

    def post(self, path: str, body: Body) -> tuple[int, str]:
        """Return the status and the text of an answer."""
        with self._make() as client:
            answer = client.post(path, dict(body), _SECONDS)
        return int(answer.status_code), str(answer.text)


def _short(text: str) -> str:
    """Return the message of an error answer."""
    found: Any = None
    with contextlib.suppress(ValueError):
        found = json.loads(text)
    while isinstance(found, dict):
        found = found.get("error", found.get("message", ""))
    return " ".join((found if isinstance(found, str) and found else text).split())[:_SHOWN]


def _document(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise EngineError(f"its answer is not JSON: {_short(text)}") from None


def _answer(found: Any) -> ContractAnswer:
    """Return an answer of `/generate`. Raises EngineError if it does not have SGLang's format."""
    try:
        meta = found["meta_info"]
        reason = meta.get("finish_reason") or {}
        ids = found.get("output_ids")
        if ids is None:  # for text up to 0.4.10.post2 (tokenizer_manager.py)
            ids = [entry[1] for entry in meta.get("output_token_logprobs") or ()]
        return ContractAnswer(
            tuple(map(int, ids)),
            str(found.get("text") or ""),
            Finish(str(reason.get("type") or ""), reason.get("matched")),
            meta,
        )
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        shown = f"{type(error).__name__}: {error}"[:_SHOWN]
        raise EngineError(f"/generate did not answer like SGLang: {shown}") from None
