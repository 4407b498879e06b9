"""Reads HTTP responses within limits on total time, header bytes and body bytes.

The limits apply at the socket, and thus to all parts of a response: interim responses, header
lines, chunk sizes, trailers. Nothing is decompressed, no proxy is used, and redirects are followed
only to the same server.
"""

from __future__ import annotations

import io
import select
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urljoin, urlsplit

from msgspec import Struct

if TYPE_CHECKING:
    import ssl

MOST_BYTES = 16 << 20
"""Default limit of a body in bytes."""
_HEADER_BYTES = 64 << 10
_ERROR_BYTES = 64 << 10
"""Limit of an error response's body in bytes. Further bytes are dropped."""
_CHUNK = 1 << 16
_SHOWN = 200
_ERROR = 400
_REDIRECTS = (301, 302, 303, 307, 308)
_PORTS = {"http": 80, "https": 443}


class HttpError(Exception):
    """Error: no usable response. The message states the reason."""


class LateError(HttpError):
    """Error: the response was not complete in time."""


class UnboundedError(HttpError):
    """Error: the response exceeds its size limit."""


class Response(Struct, frozen=True):
    """A response with any status. The `content` of an error response may be truncated."""

    status: int
    content: bytes
    seconds: float
    """Time from the request to the last byte."""


def collect(chunks: Iterable[bytes], most: int, deadline: float) -> bytes:
    """Return at most `most` + 1 bytes of `chunks`. An extra byte means that they exceed `most`.

    Raises LateError after `deadline` (`time.monotonic`).
    """
    data = bytearray()
    for chunk in chunks:
        data += chunk[: most + 1 - len(data)]
        if len(data) > most:
            break
        if time.monotonic() > deadline:
            raise LateError("timed out")
    return bytes(data)


class HttpReader:
    """A client for one server, with a persistent connection. Its methods raise HttpError."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """Create a client for `url` (scheme, host and port) that sends `headers`.

        `tls` creates the TLS context for https. The default verifies certificates.
        """
        self._url, self._headers, self._tls = urlsplit(url), dict(headers), tls
        self._connection: _Bounded | None = None

    def request(
        self,
        method: str,
        path: str,
        seconds: float,
        body: bytes | None = None,
        *,
        most: int | None = None,
        redirects: int = 0,
    ) -> Response:
        """Return the response to one request.

        The response must be complete within `seconds`, including up to `redirects` redirects.
        Its body may have at most `most` bytes (default: MOST_BYTES).
        """
        most = MOST_BYTES if most is None else most
        began = time.monotonic()
        deadline = began + seconds
        while True:
            try:
                status, content, location = self._exchange(method, path, deadline, body, most)
            except HttpError:
                self.close()
                raise
            except TimeoutError:
                self.close()
                raise LateError("timed out") from None
            except (OSError, HTTPException, ValueError) as error:
                self.close()
                raise HttpError(_reason(error)) from error
            if not (redirects and location and status in _REDIRECTS):
                return Response(status, content, time.monotonic() - began)
            path, redirects = self._redirected(path, location), redirects - 1

    def close(self) -> None:
        """Close the connection. The next request opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(
        self, method: str, path: str, deadline: float, body: bytes | None, most: int
    ) -> tuple[int, bytes, str | None]:
        connection = self._connected(deadline)
        headers = {**self._headers, "Content-Type": "application/json"} if body else self._headers
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        if response.status >= _ERROR:
            content, is_complete = _body(connection, response, _ERROR_BYTES, deadline)
        else:
            content, is_complete = _body(connection, response, most, deadline)
            if not is_complete:
                raise UnboundedError(f"sends more than {most / (1 << 20):g} MiB")
        if response.will_close or not is_complete:
            response.close()
            self.close()
        return response.status, content, response.getheader("Location")

    def _connected(self, deadline: float) -> _Bounded:
        """Return the open connection, or a new one if there is none or the server closed it."""
        found = self._connection
        if found is not None and found.sock is not None:
            if not select.select([found.sock], [], [], 0)[0]:
                found.bound.begin(deadline)
                return found
            self.close()
        host, port, left = self._url.hostname or "", self._url.port, deadline - time.monotonic()
        bound = _Bound(deadline)
        if self._url.scheme == "https":
            new: _Bounded = _BoundedHttps(
                host, port, timeout=max(left, 0.001), context=(self._tls or _verified)()
            )
        else:
            new = _Bounded(host, port, timeout=max(left, 0.001))
        new.bound = bound
        self._connection = new
        return new

    def _redirected(self, path: str, location: str) -> str:
        """Return the path that `location` names. Raises HttpError if it is on another server."""
        try:
            there = urlsplit(urljoin(f"{self._url.scheme}://{self._url.netloc}{path}", location))
            same = _server(there) == _server(self._url)
        except ValueError:
            same = False
        if not same:
            raise HttpError("redirects to another server (not followed)")
        return f"{there.path or '/'}?{there.query}" if there.query else there.path or "/"


class _Bound:
    """Remaining time and remaining bytes on the wire for one response."""

    def __init__(self, deadline: float) -> None:
        self.begin(deadline)

    def begin(self, deadline: float) -> None:
        """Reset the limits for the header of a response."""
        self.deadline = deadline
        self.bytes_left = _HEADER_BYTES + io.DEFAULT_BUFFER_SIZE

    def seconds_left(self) -> float:
        """Return the seconds left for the next read. Raises LateError, UnboundedError."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise LateError("timed out")
        if self.bytes_left < 0:
            raise UnboundedError("sends an endless header or trailer")
        return left


class _BoundedFile(io.RawIOBase):
    """The reading side of a socket, limited by a `_Bound`."""

    def __init__(self, sock: socket.socket, bound: _Bound) -> None:
        self._sock, self._bound = sock, bound
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(self._bound.seconds_left())
        count = self._raw.readinto(buffer) or 0
        self._bound.bytes_left -= count
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _BoundedSocket:
    """The part of the socket interface that http.client uses, with bounded reads."""

    def __init__(self, sock: socket.socket, bound: _Bound) -> None:
        self._sock, self._bound = sock, bound

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(self._bound.seconds_left())
        self._sock.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_BoundedFile(self._sock, self._bound))

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()


class _Bounded(HTTPConnection):
    """An HTTP connection whose responses are read within `bound`."""

    bound: _Bound

    def connect(self) -> None:
        super().connect()
        self.sock: Any = _BoundedSocket(self.sock, self.bound)


class _BoundedHttps(_Bounded, HTTPSConnection):
    """A bounded connection over TLS."""


def _body(
    connection: _Bounded, response: HTTPResponse, most: int, deadline: float
) -> tuple[bytes, bool]:
    """Return at most `most` bytes of a body, and True if the body is complete."""
    if response.getheader("Content-Encoding", "identity").lower() != "identity":
        raise HttpError("sends a compressed body, which was not requested")
    length = response.length  # None: chunked, or until the connection ends
    if length is not None and length > most and response.status < _ERROR:
        return b"", False
    connection.bound.bytes_left += 2 * most + _HEADER_BYTES  # chunk sizes, trailers
    data = collect(iter(lambda: response.read(min(_CHUNK, most + 1)), b""), most, deadline)
    if length is not None and len(data) < min(length, most + 1):
        raise HttpError(f"sent {len(data)} of {length} bytes")
    return data[:most], len(data) <= most


def _server(url: SplitResult) -> tuple[str, str | None, int | None]:
    return url.scheme, url.hostname, url.port or _PORTS.get(url.scheme)


def _verified() -> ssl.SSLContext:
    import ssl  # noqa: PLC0415 - heavy, and https only

    return ssl.create_default_context()


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return "".join(
        character if character.isprintable() else " " for character in str(text)[:_SHOWN]
    )
