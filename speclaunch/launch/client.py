"""What we ask a running engine over HTTP."""

from __future__ import annotations

import json
import select
import ssl
import time
from http.client import (
    HTTPConnection,
    HTTPException,
    HTTPSConnection,
    RemoteDisconnected,
)
from typing import Any
from urllib.parse import urlsplit

from speclaunch.launch.address import Address
from speclaunch.record import record

HEALTH_SECONDS = 5.0
_INFO_SECONDS = 30.0
_OK, _NOT_FOUND, _BAD_REQUEST = 200, 404, 400
_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 5


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

    def json(self) -> Any:
        """The body as a JSON document. Raises ValueError."""
        return json.loads(self.content)


class EngineClient:
    """A client of one engine, by the standard library alone: it stays as long as the engine, and
    needs none of what a large client library loads. Its methods raise EngineError.

    No proxy comes between us and our own machine.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._headers = {"Accept": "*/*", "User-Agent": "speclaunch"}
        if address.api_key:
            self._headers["Authorization"] = f"Bearer {address.api_key}"
        self._open: HTTPConnection | None = None

    def __enter__(self) -> EngineClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

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
        info: dict[str, Any] = _good(path, answer).json()
        return info

    def _ask(
        self, method: str, path: str, timeout: float, body: bytes | None = None, redirects: int = 0
    ) -> Answer:
        """`timeout` in seconds for each step: connecting, sending, the next piece of the answer."""
        try:
            answer, location = self._exchange(method, path, timeout, body)
        except (OSError, HTTPException) as error:
            self._close()
            silent = isinstance(error, TimeoutError)
            found = EngineSilentError("timed out") if silent else EngineError(_said(error))
            found.path = path
            raise found from error
        if redirects and location and answer.status_code in _REDIRECTS:
            further = urlsplit(location)
            path = f"{further.path}?{further.query}" if further.query else further.path
            return self._ask(method, path or "/", timeout, body, redirects - 1)
        return answer

    def _exchange(
        self, method: str, path: str, timeout: float, body: bytes | None
    ) -> tuple[Answer, str | None]:
        headers = {**self._headers, "Content-Type": "application/json"} if body else self._headers
        began = time.monotonic()
        connection = self._connected(timeout)
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        content = response.read()
        if response.will_close:
            self._close()
        answer = Answer(response.status, content, time.monotonic() - began)
        return answer, response.getheader("Location")

    def _connected(self, timeout: float) -> HTTPConnection:
        """The connection that is open, or a new one where the engine has closed it."""
        if self._open is not None and self._open.sock is not None:
            if not select.select([self._open.sock], [], [], 0)[0]:
                self._open.sock.settimeout(timeout)
                return self._open
            self._close()
        url = urlsplit(self._address.url)
        host = url.hostname or ""
        if self._address.tls:
            self._open = HTTPSConnection(host, url.port, timeout=timeout, context=_no_check())
        else:
            self._open = HTTPConnection(host, url.port, timeout=timeout)
        return self._open

    def _close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

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
        data = answer.json()
        meta = data["meta_info"]
        tokens = int(meta["completion_tokens"])
        count = meta.get("spec_verify_ct") or None
        length = meta.get("spec_accept_length")
        if length is None and count:  # older engines give the count only
            length = tokens / count
        return Generation(
            text=data.get("text") or "",
            tokens=tokens,
            seconds=answer.seconds,
            verify_count=count,
            acceptance_length=length,
        )


def _good(path: str, answer: Answer) -> Answer:
    """The answer where it is none of an error. Raises EngineRefusalError."""
    if answer.status_code >= _BAD_REQUEST:
        raise EngineRefusalError(path, answer)
    return answer


def _said(error: Exception) -> str:
    if isinstance(error, RemoteDisconnected):
        return "Server disconnected without sending a response."
    return str(error)


def _no_check() -> ssl.SSLContext:
    """We talk to the engine that we started, on this machine: its certificate is for the name that
    its users call it by."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
