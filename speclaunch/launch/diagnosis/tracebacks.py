"""Reads tracebacks: frames, the exception, its message, and those that follow from it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import field, replace

from speclaunch.launch.diagnosis.signature import Frame, LogFailure
from speclaunch.launch.log.lines import LogLine
from speclaunch.record import record

BEGIN = "Traceback (most recent call last):"
_FRAME = re.compile(
    r' {2}File "(?P<path>[^"]{1,600})", line \d{1,7}(?:, in (?P<function>.{1,200}))?'
)
_EXCEPTION = re.compile(r"(?P<kind>[A-Za-z_][\w.]{1,160})(?:: ?(?P<message>.*))?$")
_EXCEPTION_NAMES = ("Error", "Exception", "Interrupt", "Exit", "NotFound", "Timeout", "Warning")
_BETWEEN = (
    "During handling of the above exception",
    "The above exception was the direct cause",
)
_OF_REQUESTS = re.compile(
    r"ERROR: +Exception in ASGI|Task exception was never retrieved|Exception in callback"
)
"""What `logger.exception` says above the traceback of something that the process survives."""
_HARMLESS = re.compile(
    r"Ignore import error|\[http_server\] Error|Error in |Failed to (?:load|import) |Pyspy failed"
    r"|Dumping requests"
)
_MOST_FRAMES = 60
_MOST_MESSAGE_LINES = 8
_LONGEST_MESSAGE = 8000

MakeFailure = Callable[[LogLine, str, str], LogFailure]
"""A failure of this line, kind and message."""
Raised = Callable[[LogFailure, bool], None]
"""Is told of each exception, and whether it ended a process."""


@record(frozen=False)
class _Traceback:
    """A traceback that is being read."""

    head: str
    rank: str
    top: bool
    """Of the engine's main process, without a header."""
    start: int
    frames: list[Frame] = field(default_factory=list)
    code: str = ""
    failure: LogFailure | None = None
    """The exception, once it has been read; its message may go on for some lines."""
    extra: int = 0

    @property
    def harmless(self) -> bool:
        """The process lives on."""
        return bool(_OF_REQUESTS.match(self.head) or _HARMLESS.match(self.head))

    @property
    def final(self) -> bool:
        """The process ended of it, by what stands above."""
        return (
            self.top
            or "hit an exception" in self.head
            or self.head.startswith("Initialization failed")
        )


class Tracebacks:
    """Feed it the lines without a header; exceptions come out of `raised`."""

    def __init__(self, make: MakeFailure, raised: Raised) -> None:
        self._make = make
        self._raised = raised
        self._reading: _Traceback | None = None

    def begin(self, line: LogLine, head: str) -> None:
        """`Traceback (most recent call last):` stands at the end of `head`, or alone."""
        top = not line.stamped and not _OF_REQUESTS.match(head)
        shown = head if line.stamped or not top else ""
        self._reading = _Traceback(shown, line.rank, top, line.number)

    def end(self) -> None:
        """No more lines of it."""
        reading, self._reading = self._reading, None
        if reading is not None and reading.failure is not None:
            self._tell(reading, reading.failure)

    def feed(self, line: LogLine, text: str) -> bool:
        """Whether the line belongs to the traceback that is being read."""
        reading = self._reading
        if reading is None:
            return False
        if reading.failure is not None:
            return self._after_exception(reading, reading.failure, text)
        if text.startswith(BEGIN):
            reading.frames.clear()
        elif text.startswith(" "):
            _within(reading, text)
        elif text and not text.startswith(_BETWEEN):
            return self._exception(reading, line, text)
        return True

    def _after_exception(self, reading: _Traceback, failure: LogFailure, text: str) -> bool:
        """The message goes on, or another exception follows, or it is over."""
        if not text or text.startswith((BEGIN, *_BETWEEN)):
            self._tell(reading, failure)
            reading.failure, reading.extra = None, 0
            reading.frames.clear()
            return True
        reading.extra += 1
        if reading.extra > _MOST_MESSAGE_LINES:
            self.end()
            return False
        reading.failure = replace(failure, message=f"{failure.message}\n{text}"[:_LONGEST_MESSAGE])
        return True

    def _exception(self, reading: _Traceback, line: LogLine, text: str) -> bool:
        found = _EXCEPTION.match(text[:4000])
        if found is None:
            self._reading = None
            return False
        kind = found["kind"].rpartition(".")[2]
        reading.failure = replace(
            self._make(line._replace(rank=reading.rank), kind, found["message"] or ""),
            head=reading.head,
            frames=tuple(reading.frames),
            code=reading.code,
            chain=reading.start,
        )
        return True

    def _tell(self, reading: _Traceback, failure: LogFailure) -> None:
        if not reading.harmless:
            self._raised(failure, reading.final)


def lone(text: str) -> tuple[str, str] | None:
    """Kind and message of an exception whose traceback was cut off."""
    found = _EXCEPTION.match(text[:4000])
    if found is None or not found["message"] or not found["kind"].endswith(_EXCEPTION_NAMES):
        return None
    return found["kind"].rpartition(".")[2], found["message"]


def _within(reading: _Traceback, text: str) -> None:
    """A frame, or the source line beneath it."""
    frame = _FRAME.match(text)
    if frame is None:
        if text.strip(" ^~"):  # marks beneath the source line say nothing
            reading.code = text.strip()[:400]
        return
    path = frame["path"].replace("\\", "/")
    reading.code = ""
    if len(reading.frames) >= _MOST_FRAMES:
        del reading.frames[_MOST_FRAMES // 2]
    reading.frames.append(Frame(path.rpartition("/")[2], frame["function"] or "", path))
