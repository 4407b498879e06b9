"""A proxy in front of an engine: what is asked and what is answered passes through a `Through`."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

Event = dict[str, Any]
"""One event of a streamed answer."""


class CutError(Exception):
    """The connection ends here."""


class Through:
    """Everything passes as it is. `pace`: an answer takes so many times as long as the engine's."""

    pace = 1.0

    def __init__(self, engine: str) -> None:
        """`engine`: its URL."""
        self.engine = engine

    def instead(self, path: str, body: Event) -> tuple[int, str] | None:
        """An answer that the engine is not asked for: a status and a text."""
        return None

    def asked(self, body: Event) -> Event:
        """What `/generate` is asked for."""
        return body

    def said(self, events: Iterator[Event], body: Event) -> Iterator[Event]:
        """What `/generate` answers. CutError ends the connection."""
        return events


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class Proxy:
    """Serves in threads of its own until it is closed."""

    def __init__(self, through: Through) -> None:
        self.through = through
        client = httpx.Client(timeout=300, limits=httpx.Limits(max_connections=None))

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer = client.get(through.engine + self.path)
                self._whole(answer.status_code, answer.content)

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                body: Event = json.loads(raw) if raw else {}
                path = self.path.partition("?")[0]
                instead = through.instead(path, body)
                if instead is not None:
                    self._whole(instead[0], instead[1].encode())
                elif path == "/generate" and body.get("stream"):
                    self._streamed(through.asked(body), body)
                else:
                    answer = client.post(through.engine + self.path, json=body if raw else None)
                    self._whole(answer.status_code, answer.content)

            def _whole(self, status: int, content: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def _streamed(self, asked: Event, body: Event) -> None:
                begun = time.monotonic()
                url = f"{through.engine}/generate"
                with client.stream("POST", url, json=asked) as answer:
                    if answer.status_code != 200:
                        self._whole(answer.status_code, answer.read())
                        return
                    self.send_response(200)
                    self.send_header("Content-Type", "text/event-stream")
                    self.send_header("Connection", "close")
                    self.end_headers()
                    try:
                        for event in through.said(_in_time(answer, begun, through), body):
                            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
                            self.wfile.flush()
                    except (CutError, httpx.HTTPError):
                        return
                    self.wfile.write(b"data: [DONE]\n\n")
                self.close_connection = True

            def log_message(self, *_: object) -> None:
                """Nothing of it is shown."""

        self._client = client
        self._server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._client.close()


def _in_time(answer: httpx.Response, begun: float, through: Through) -> Iterator[Event]:
    """Each event when it is due: when the engine said it, by the pace."""
    arrived: queue.SimpleQueue[tuple[float, Event | Exception | None]] = queue.SimpleQueue()

    def listen() -> None:  # apart, so that what is sent late was not heard late
        try:
            for line in answer.iter_lines():
                text = line.removeprefix("data:").strip()
                if text and text != "[DONE]":
                    arrived.put((time.monotonic(), json.loads(text)))
            arrived.put((time.monotonic(), None))
        except httpx.HTTPError as error:
            arrived.put((time.monotonic(), error))

    threading.Thread(target=listen, daemon=True).start()
    while True:
        heard, event = arrived.get()
        due = begun + (heard - begun) * through.pace
        time.sleep(max(0.0, due - time.monotonic()))
        if event is None:
            return
        if isinstance(event, Exception):
            raise event
        yield event
