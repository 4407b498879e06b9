"""HTTP client of a running engine, and the check that it serves the requested settings."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import Struct, field

from speclaunch.core import (
    HttpError,
    HttpReader,
    LateError,
    UnreadableFileError,
    is_shallow,
    parse_document,
    size,
)

if TYPE_CHECKING:
    import ssl

    from speclaunch.deployments import VerificationSection as Settings
    from speclaunch.engine import Address, RenderedArgs

HEALTH_SECONDS = 5.0
_INFO_SECONDS = 30.0
_OK, _NOT_FOUND, _BAD_REQUEST = 200, 404, 400
_MAX_REDIRECTS = 5
_DEEPEST = 50
"""Maximum nesting depth of a JSON answer; SGLang's answers have fewer than 10 levels."""
_LONGEST = 1e6
"""Maximum acceptance length; larger and infinite values are invalid."""


class Generation(Struct, frozen=True):
    """One generation, with the engine's counters for it."""

    text: str
    tokens: int
    seconds: float
    verify_count: int | None
    """Count of draft verifications by the target; None if the engine did not speculate."""
    acceptance_length: float | None
    """Tokens per verification: 1.0 if no drafted token was accepted, None if the engine did not
    speculate."""


class EngineError(Exception):
    """Missing or unusable answer from the engine. The message states the reason."""

    path = ""


class EngineSilentError(EngineError):
    """No answer within the time limit."""


class EngineRefusalError(EngineError):
    """Answer from the engine with an error status."""

    def __init__(self, path: str, answer: EngineResponse) -> None:
        super().__init__(f"{path} answered {answer.status_code}")
        self.path, self.answer = path, answer


class EngineResponse(Struct, frozen=True):
    """Answer from the engine, whatever its status."""

    status_code: int
    content: bytes
    seconds: float
    """Seconds from the request to the last byte."""

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")

    def json(self) -> dict[str, Any]:
        """Return the body as a JSON object. Raises EngineError."""
        found = self.document()
        if not isinstance(found, dict):
            raise EngineError("its answer is not a JSON object")
        return found

    def document(self) -> Any:
        """Return the body as a JSON document of limited depth. Raises EngineError."""
        try:
            found = parse_document(self.content, "its answer")
        except UnreadableFileError as error:
            raise EngineError(str(error)) from None
        if not is_shallow(found, _DEEPEST):
            raise EngineError(f"its answer is nested deeper than {_DEEPEST} levels")
        return found


class EngineClient:
    """HTTP client of one engine. Its methods raise EngineError. `timeout`: total seconds for an
    answer.

    It uses only the standard library, and ignores proxies because the engine is on this machine.
    """

    def __init__(self, address: Address) -> None:
        self._reader = HttpReader(address.url, _headers(address.api_key), _no_check)
        self._prefix = ""

    @classmethod
    def of_server(cls, url: str, key: str | None) -> EngineClient:
        """Return a client for a server on any machine. It verifies the server's certificate."""
        client = cls.__new__(cls)
        client._reader = HttpReader(url, _headers(key))
        client._prefix = urlsplit(url).path
        return client

    def __enter__(self) -> EngineClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def healthy(self) -> bool:
        """True if `/health` answers 200: the engine accepts requests."""
        try:
            return self._request("GET", "/health", HEALTH_SECONDS).status_code == _OK
        except EngineError:
            return False

    def get(
        self, path: str, timeout: float = HEALTH_SECONDS, *, most: int | None = None
    ) -> EngineResponse:
        """Return the answer to a GET request, whatever its status. `most`: maximum bytes to
        read."""
        return self._request("GET", path, timeout, redirects=_MAX_REDIRECTS, most=most)

    def post(self, path: str, body: dict[str, Any], timeout: float) -> EngineResponse:
        """Return the answer to a POST of a JSON document, whatever its status."""
        return self._request("POST", path, timeout, json.dumps(body).encode())

    def server_info(self, timeout: float = _INFO_SECONDS) -> dict[str, Any]:
        """Return the engine's effective arguments and internal state."""
        path = "/server_info"
        answer = self._request("GET", path, timeout)
        if answer.status_code == _NOT_FOUND:  # before 0.5.6: entrypoints/http_server.py
            path = "/get_server_info"
            answer = self._request("GET", path, timeout)
        return _good(path, answer).json()

    def _request(
        self,
        method: str,
        path: str,
        timeout: float,
        body: bytes | None = None,
        redirects: int = 0,
        most: int | None = None,
    ) -> EngineResponse:
        path = f"{self._prefix}{path}"
        try:
            found = self._reader.request(
                method, path, timeout, body, most=most, redirects=redirects
            )
        except HttpError as error:
            kind = EngineSilentError if isinstance(error, LateError) else EngineError
            failed = kind(str(error))
            failed.path = path
            raise failed from error
        return EngineResponse(found.status, found.content, found.seconds)

    def generate(self, prompt: str | list[int], max_new_tokens: int, timeout: float) -> Generation:
        """Return a greedy generation. `prompt`: text, or token ids for an engine without a
        tokenizer."""
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
    meta, text = data.get("meta_info"), data.get("text")
    tokens = size(meta.get("completion_tokens"), least=0) if isinstance(meta, dict) else None
    if not isinstance(meta, dict) or tokens is None:
        raise EngineError("/generate reports no completion_tokens")
    count = size(meta.get("spec_verify_ct"))
    length = meta.get("spec_accept_length")
    if not isinstance(length, int | float) or not 0 < length < _LONGEST:
        length = tokens / count if count else None  # older engines give only the count
    return Generation(
        text=text if isinstance(text, str) else "",
        tokens=tokens,
        seconds=seconds,
        verify_count=count,
        acceptance_length=length,
    )


def _good(path: str, answer: EngineResponse) -> EngineResponse:
    if answer.status_code >= _BAD_REQUEST:
        raise EngineRefusalError(path, answer)
    return answer


def _headers(key: str | None) -> dict[str, str]:
    authorization = {"Authorization": f"Bearer {key}"} if key else {}
    return {"Accept": "*/*", "User-Agent": "speclaunch", **authorization}


def _no_check() -> ssl.SSLContext:
    """Return a TLS context without certificate checks. The engine is local, but its certificate
    names its public host."""
    import ssl  # noqa: PLC0415 - heavy, and https only

    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


_NEEDS_DRAFT = ("STANDALONE", "EAGLE3")
"""Algorithms with a separate draft model. Without one, the engine serves with the target as its own
draft, accepting every token or none (0.5.23 model_config.py: `model_path or
server_args.model_path`)."""

_NOTHING_ACCEPTED = 1.0
_SHOWN = 2000
"""Maximum number of characters shown of a value that the engine changed."""
_TOKEN_IDS = list(range(10, 26))


class OverriddenArgument(Struct, frozen=True):
    """A server argument whose effective value differs from the requested value."""

    name: str
    requested: str = field(name="asked")
    effective: str


class Verification(Struct, frozen=True):
    """Result of verifying a ready engine."""

    generation: Generation | None
    algorithm: str | None
    changes: tuple[OverriddenArgument, ...] = ()
    problems: tuple[str, ...] = ()
    """Reasons why the engine does not serve the requested settings."""
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems


def verify(client: EngineClient, rendered: RenderedArgs, settings: Settings) -> Verification:
    """Request the engine's arguments and one generation; return the result of checking both."""
    try:
        info = client.server_info()
        generation = None
        role = info.get("disaggregation_mode")
        generates = role in (None, "null") and not info.get("is_embedding")
        if generates:
            prompt = _TOKEN_IDS if info.get("skip_tokenizer_init") else settings.prompt
            generation = client.generate(prompt, settings.max_new_tokens, settings.timeout_seconds)
    except EngineRefusalError as error:
        reason = f"{error}: {error.answer.text.strip()[:300]}"
        return Verification(None, None, problems=(reason,))
    except EngineSilentError as error:
        reason = f"{error.path} did not answer within {settings.timeout_seconds:g} s"
        return Verification(None, None, problems=(reason,))
    except EngineError as error:
        return Verification(None, None, problems=(f"the engine's answer is not valid: {error}",))
    verdict = check_answers(info, generation, rendered)
    if generates:
        return verdict
    note = f"generation was not checked: disaggregation_mode={role} cannot generate alone"
    return Verification(
        None, verdict.algorithm, verdict.changes, verdict.problems, (*verdict.warnings, note)
    )


def check_answers(
    info: Mapping[str, Any], generation: Generation | None, rendered: RenderedArgs
) -> Verification:
    """Return the result of comparing the engine's answers with the requested settings.

    `generation`: None if it was not requested.
    """
    requested = rendered.value("speculative_algorithm")
    algorithm = info.get("speculative_algorithm")
    problems: list[str] = []
    warnings: list[str] = []
    if requested and not algorithm:
        problems.append(
            f"speculation is off: {requested} was requested, but the engine runs without it"
        )
    elif requested and generation is not None and not generation.verify_count:
        problems.append(f"the engine reports {algorithm} but generated without drafting")
    elif generation is not None and (generation.acceptance_length or inf) <= _NOTHING_ACCEPTED:
        warnings.append(
            "acceptance length 1.0: no drafted token was accepted, so speculation only adds "
            "latency; check that the draft was trained for this target"
        )
    draft = info.get("speculative_draft_model_path")
    if requested in _NEEDS_DRAFT and draft in (None, info.get("model_path")):
        warnings.append(f"{requested} runs with the target as its own draft; set a draft model")
    return Verification(
        generation, algorithm, _changes(info, rendered), tuple(problems), tuple(warnings)
    )


def _changes(info: Mapping[str, Any], rendered: RenderedArgs) -> tuple[OverriddenArgument, ...]:
    changes = []
    for argument in rendered.arguments:
        field = argument.dest or argument.name  # the engine uses its version's own names
        if argument.secret or field not in info:
            continue
        effective = info[field]
        text = _text(effective)
        requested = " ".join(argument.values) if argument.values else "true"
        if not _same(requested, text):
            shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
            changes.append(OverriddenArgument(argument.name, requested, shown))
    return tuple(changes)


def _text(value: object) -> str:
    if isinstance(value, list):
        return " ".join(_text(item) for item in value)
    if isinstance(value, str):
        return value
    return json.dumps(value)


def _same(requested: str, effective: str) -> bool:
    if requested.lower() == effective.lower():
        return True
    if re.fullmatch(r"\d+(\.\d+)?[kKmMgG]i?", requested):  # human_readable_int: 32k
        return effective.isdigit()
    try:
        return bool(json.loads(requested) == json.loads(effective))
    except (ValueError, RecursionError):
        return False
