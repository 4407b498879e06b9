"""A hub of our own: a real HTTP server on a free port, for what is asked behind HF_ENDPOINT."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Answer(NamedTuple):
    """What the hub says: a status, headers, a body."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = MappingProxyType({})


class Asked(NamedTuple):
    """A request: its path without the query, and its headers (lower case)."""

    path: str
    query: str
    headers: dict[str, str]

    @property
    def file(self) -> str:
        return self.path.rpartition("/")[2]


Handler = BaseHTTPRequestHandler
Reply = Answer | bytes | dict[str, Any] | list[Any] | Callable[[Handler], Answer | None]
"""Bytes, JSON, a whole answer, or a function that answers by itself (and returns None)."""


@dataclass
class HubServer:
    """Answers by the file that is asked for, 404 for what it does not have; `api`: the page of
    the model. Ranges are served as the hub serves them."""

    answers: dict[str, Reply] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    @property
    def files(self) -> list[str]:
        return [one.file for one in self.asked if not one.path.startswith("/api/")]

    def reply(self, handler: Handler) -> Answer | None:
        parts = urlsplit(handler.path)
        headers = {key.lower(): value for key, value in handler.headers.items()}
        self.asked.append(Asked(parts.path, parts.query, headers))
        key = "api" if parts.path.startswith("/api/models/") else unquote(self.asked[-1].file)
        found = self.answers.get(key)
        if found is None:
            return Answer(404, headers={"x-error-code": "EntryNotFound"})
        if callable(found):
            return found(handler)
        if isinstance(found, Answer):
            return found
        body = found if isinstance(found, bytes) else json.dumps(found).encode()
        told = {"x-repo-commit": COMMIT}
        wanted = headers.get("range", "")
        if wanted.startswith("bytes="):
            start, _, end = wanted.removeprefix("bytes=").partition("-")
            part = body[int(start) : int(end) + 1]
            told["content-range"] = f"bytes {start}-{int(start) + len(part) - 1}/{len(body)}"
            return Answer(206, part, told)
        return Answer(200, body, told)


@contextmanager
def serving(answers: dict[str, Reply] | None = None) -> Iterator[HubServer]:
    """A server that listens while the block runs."""
    hub = HubServer(dict(answers or {}))

    class Handling(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = hub.reply(self)
            if found is None:
                self.close_connection = True
                return
            self.send_response(found.status)
            headers = {"content-length": str(len(found.body)), **found.headers}
            for key, value in headers.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(found.body)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, *_: Any) -> None:
            pass  # a client that had enough

    server = Server(("127.0.0.1", 0), Handling)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
