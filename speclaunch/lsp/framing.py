"""The messages of an editor's stream, bounded: what is malformed or too large is passed over."""

from __future__ import annotations

import json
import re
from typing import BinaryIO

MAX_MESSAGE_BYTES = 32 << 20
"""A document of 10 MiB fits, escaped."""
_MAX_SKIPPED_BYTES = 1 << 30
"""A longer message is no message: the next header is searched."""
_LINE_BYTES = 1 << 16
_CHUNK = 1 << 20
SKIPPED = "speclaunch/skippedMessage"
"""The notification in place of a message that is too large; its `size` in bytes."""
_LENGTH = re.compile(rb"content-length[ \t]*:[ \t]*(\d{1,20})[ \t]*\r?\n\Z", re.IGNORECASE)


class BoundedInput:
    """A stream of messages for pygls: `readline` yields a header that it understands, `read` the
    body of the size in it.

    A header without a valid length is passed over; the next one is found even directly behind a
    body of unknown length. A message that is too large becomes a notification of that.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._is_in_header = False
        self._instead: bytes | None = None
        """The body that comes next, if it is not the stream's."""

    def readline(self) -> bytes:
        """Return the next line of a header; nothing at the end of the stream."""
        if self._is_in_header:
            self._is_in_header = False
            return b"\r\n"
        length = self._next_length()
        if length > MAX_MESSAGE_BYTES:
            self._skip(length)
            said = {"jsonrpc": "2.0", "method": SKIPPED, "params": {"size": length}}
            self._instead = json.dumps(said).encode()
            length = len(self._instead)
        self._is_in_header = length > 0
        return b"Content-Length: %d\r\n" % length if length else b""

    def _next_length(self) -> int:
        length = 0
        while line := self._stream.readline(_LINE_BYTES):
            found = _LENGTH.search(line)
            if found is not None:
                length = int(found[1])
            elif length and not line.strip():
                return length
        return 0

    def read(self, size: int) -> bytes:
        """Return the body."""
        instead, self._instead = self._instead, None
        return self._stream.read(size) if instead is None else instead

    def _skip(self, length: int) -> None:
        if length > _MAX_SKIPPED_BYTES:
            return
        while length > 0:
            data = self._stream.read(min(length, _CHUNK))
            if not data:
                return
            length -= len(data)
