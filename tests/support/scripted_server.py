"""A server on a free port that answers with bytes, whatever HTTP allows: for hostile answers."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Script = Callable[[socket.socket], None]
"""Answers one request on a connection."""

OK = b"HTTP/1.1 200 OK\r\n"


def sends(*parts: bytes) -> Script:
    """Send these bytes, then close."""

    def script(connection: socket.socket) -> None:
        for part in parts:
            connection.sendall(part)

    return script


def endless(begin: bytes, again: bytes, pause: float = 0.0) -> Script:
    """Send the same bytes until the client has had enough."""

    def script(connection: socket.socket) -> None:
        connection.sendall(begin)
        while True:
            connection.sendall(again)
            time.sleep(pause)

    return script


def body(content: bytes, *headers: bytes) -> bytes:
    """A whole answer."""
    lines = b"".join(header + b"\r\n" for header in headers)
    return OK + lines + b"Content-Length: %d\r\n\r\n" % len(content) + content


def redirect(location: bytes) -> Script:
    """Send the client to another address."""
    return sends(
        b"HTTP/1.1 307 Go\r\nContent-Length: 0\r\nConnection: close\r\nLocation: "
        + location
        + b"\r\n\r\n"
    )


_BLOCK = b"a" * 65536
HOSTILE: dict[str, Script] = {
    "endless body": endless(OK + b"\r\n", _BLOCK),
    "endless chunks": endless(
        OK + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + _BLOCK + b"\r\n"
    ),
    "endless trailers": endless(OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"a: b\r\n" * 999),
    "endless chunk size": endless(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"0" * 9999),
    "endless header": endless(OK, b"A: b\r\n"),
    "endless header line": endless(OK + b"A: ", _BLOCK),
    "endless interim answers": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 99),
    "endless status line": endless(b"", _BLOCK),
    "a byte at a time": endless(OK + b"\r\n", b"a", 0.01),
    "a header byte at a time": endless(OK + b"A: ", b"a", 0.01),
    "silent": endless(b"", b"", 0.01),
    "gigabytes announced": sends(OK + b"Content-Length: 99999999999\r\n\r\n{}"),
    "compressed": sends(
        body(gzip.compress(b"[" + b"0," * 999_999 + b"0]"), b"Content-Encoding: gzip")
    ),
    "redirect to itself": redirect(b"/server_info"),
    "redirect to another host": redirect(b"http://203.0.113.1/server_info"),
    "redirect to a file": redirect(b"file:///etc/passwd"),
    "redirect to nonsense": redirect(b"http://[/"),
    "truncated": sends(OK + b"Content-Length: 99\r\n\r\n{}"),
    "truncated chunk": sends(OK + b"Transfer-Encoding: chunked\r\n\r\nff\r\n{}"),
    "no chunk size": sends(OK + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n"),
    "too short a length": sends(OK + b"Content-Length: 1\r\n\r\n{}"),
    "length that is no number": sends(OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n{"),
    "no HTTP": sends(b"\x00\xff\x1b[31m\r\n\r\n"),
    "closed": sends(),
    "endless error": endless(b"HTTP/1.1 500 No\r\n\r\n", _BLOCK),
    "no JSON": sends(body(b"<html>")),
    "no object": sends(body(b"[1]")),
    "nested": sends(body(b'{"model_path": ' + b"[" * 90_000 + b"]" * 90_000 + b"}")),
    "nested a little": sends(body(b'{"model_path": ' + b"[" * 400 + b"]" * 400 + b"}")),
    "millions of values": sends(body(b'{"model_path": [' + b"[]," * 4_000_000 + b"0]}")),
    "huge number": sends(body(b'{"model_path": ' + b"9" * 5000 + b"}")),
    "infinite": sends(body(b'{"meta_info": {"completion_tokens": Infinity}, "model_path": NaN}')),
    "other types": sends(
        body(b'{"meta_info": {"completion_tokens": {}}, "model_path": [], "internal_states": 3}')
    ),
}


@contextmanager
def scripted(script: Script) -> Iterator[str]:
    """The address of a server that answers each request with the script."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                while connection.recv(65536):
                    script(connection)
                    connection.shutdown(socket.SHUT_WR)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    threading.Thread(target=answer, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
