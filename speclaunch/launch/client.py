"""What we ask a running engine over HTTP."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from speclaunch.http_reader import HttpError, HttpReader, LateError
from speclaunch.launch.address import Address
from speclaunch.reads.safe_json import UnreadableFileError, is_shallow, parse_document, size
from speclaunch.record import record

if TYPE_CHECKING:
    import ssl

HEALTH_SECONDS = 5.0
_INFO_SECONDS = 30.0
_OK, _NOT_FOUND, _BAD_REQUEST = 200, 404, 400
_MOST_REDIRECTS = 5
_DEEPEST = 50
"""Levels of a JSON answer; SGLang's have fewer than 10."""
_LONGEST = 1e6
"""No acceptance length is larger; an infinite one neither."""


@record
class Generation:
    """One generation and the engine's own counters of it."""

    text: str
    tokens: int
    seconds: float
    verify_count: int | None
    """How often the target verified a draft; None when the engine did not speculate."""
    acceptance_length: float | None
    """Tokens per verification, 1.0 when nothing drafted was ever accepted."""


class EngineError(Exception):
    """The engine gave no answer that can be used; the text says why."""

    path = ""
    """What was asked for."""


class EngineSilentError(EngineError):
    """It did not answer in time."""


class EngineRefusalError(EngineError):
    """It answered with an error."""

    def __init__(self, path: str, answer: Answer) -> None:
        super().__init__(f"{path} answered {answer.status_code}")
        self.path, self.answer = path, answer


@record
class Answer:
    """What came back, whatever its status."""

    status_code: int
    content: bytes
    seconds: float
    """From the question to the last byte."""

    @property
    def text(self) -> str:
        """The body as text."""
        return self.content.decode(errors="replace")

    def json(self) -> dict[str, Any]:
        """The body as a JSON object. Raises EngineError."""
        found = self.document()
        if not isinstance(found, dict):
            raise EngineError("its answer is not a JSON object")
        return found

    def document(self) -> Any:
        """The body as a JSON document of few levels. Raises EngineError."""
        try:
            found = parse_document(self.content, "its answer")
        except UnreadableFileError as error:
            raise EngineError(str(error)) from None
        if not is_shallow(found, _DEEPEST):
            raise EngineError(f"its answer is nested deeper than {_DEEPEST} levels")
        return found


class EngineClient:
    """A client of one engine, by the standard library alone: it stays as long as the engine, and
    needs none of what a large client library loads. Its methods raise EngineError; `timeout` is
    the total time of an answer in seconds.

    No proxy comes between us and our own machine.
    """

    def __init__(self, address: Address) -> None:
        headers = {"Accept": "*/*", "User-Agent": "speclaunch"}
        if address.api_key:
            headers["Authorization"] = f"Bearer {address.api_key}"
        self._reader = HttpReader(address.url, headers, _no_check)

    def __enter__(self) -> EngineClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def healthy(self) -> bool:
        """Whether `/health` answers 200: from then on the engine takes requests."""
        try:
            return self._ask("GET", "/health", HEALTH_SECONDS).status_code == _OK
        except EngineError:
            return False

    def get(self, path: str, timeout: float = HEALTH_SECONDS) -> Answer:
        """Ask for anything else; the answer whatever its status."""
        return self._ask("GET", path, timeout, redirects=_MOST_REDIRECTS)

    def post(self, path: str, body: dict[str, Any], timeout: float) -> Answer:
        """Send a JSON document; the answer whatever its status."""
        return self._ask("POST", path, timeout, json.dumps(body).encode())

    def server_info(self) -> dict[str, Any]:
        """The engine's effective arguments and internal state."""
        path = "/server_info"
        answer = self._ask("GET", path, _INFO_SECONDS)
        if answer.status_code == _NOT_FOUND:  # before 0.5.x's rename
            path = "/get_server_info"
            answer = self._ask("GET", path, _INFO_SECONDS)
        return _good(path, answer).json()

    def _ask(
        self, method: str, path: str, timeout: float, body: bytes | None = None, redirects: int = 0
    ) -> Answer:
        try:
            found = self._reader.request(method, path, timeout, body, redirects=redirects)
        except HttpError as error:
            kind = EngineSilentError if isinstance(error, LateError) else EngineError
            failed = kind(str(error))
            failed.path = path
            raise failed from error
        return Answer(found.status, found.content, found.seconds)

    def generate(self, prompt: str | list[int], max_new_tokens: int, timeout: float) -> Generation:
        """Generate greedily; the prompt is text, or token ids for an engine without tokenizer."""
        body: dict[str, Any] = {
            "sampling_params": {
                "max_new_tokens": max_new_tokens,
                "temperature": 0,
                "ignore_eos": True,
            },
            ("text" if isinstance(prompt, str) else "input_ids"): prompt,
        }
        answer = _good("/generate", self.post("/generate", body, timeout))
        return _generation(answer.json(), answer.seconds)


def _generation(data: dict[str, Any], seconds: float) -> Generation:
    """The counters in an answer of `/generate`. Raises EngineError."""
    meta, text = data.get("meta_info"), data.get("text")
    tokens = size(meta.get("completion_tokens"), least=0) if isinstance(meta, dict) else None
    if not isinstance(meta, dict) or tokens is None:
        raise EngineError("/generate reports no completion_tokens")
    count = size(meta.get("spec_verify_ct"))
    length = meta.get("spec_accept_length")
    if not isinstance(length, int | float) or not 0 < length < _LONGEST:
        length = tokens / count if count else None  # older engines give the count only
    return Generation(
        text=text if isinstance(text, str) else "",
        tokens=tokens,
        seconds=seconds,
        verify_count=count,
        acceptance_length=length,
    )


def _good(path: str, answer: Answer) -> Answer:
    """The answer where it is none of an error. Raises EngineRefusalError."""
    if answer.status_code >= _BAD_REQUEST:
        raise EngineRefusalError(path, answer)
    return answer


def _no_check() -> ssl.SSLContext:
    """We talk to the engine that we started, on this machine: its certificate is for the name that
    its users call it by."""
    import ssl  # noqa: PLC0415 - heavy, and https only

    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
