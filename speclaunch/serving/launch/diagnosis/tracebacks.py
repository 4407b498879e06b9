"""Reader of tracebacks: their frames, exceptions and messages."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.serving.launch.diagnosis.interface import Frame, LogFailure
from speclaunch.serving.launch.diagnosis.launch_log import may_be_logged, may_be_printed
from speclaunch.serving.launch.engine_log import LogLine

BEGIN = "Traceback (most recent call last):"
_FRAME = re.compile(
    r' {2}File "(?P<path>[^"]{1,600})", line \d{1,7}(?:, in (?P<function>.{1,200}))?'
)
_EXCEPTION = re.compile(r"(?P<kind>[A-Za-z_][\w.]{1,160})(?:: ?(?P<message>.*))?$")
_EXCEPTION_NAMES = ("Error", "Exception", "Interrupt", "Exit", "NotFound", "Timeout", "Warning")
_BETWEEN = ("During handling of the above exception", "The above exception was the direct cause")
_NO_EXCEPTION = re.compile(r"(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL): {2,}|usage: ")
"""Beginnings of uvicorn and argparse lines, which are not exception names."""
_OF_REQUESTS = re.compile(
    r"ERROR: +Exception in ASGI|Task exception was never retrieved|Exception in callback"
)
"""Log messages above the traceback of an exception that the process survives."""
_HARMLESS = re.compile(
    r"Ignore import error|\[http_server\] Error|Error in |Failed to (?:load|import) |Pyspy failed"
    r"|Dumping requests"
)
_MAX_FRAMES = 60
_MAX_MESSAGE_LINES = 8
_MAX_FOREIGN_LINES = 40
"""Maximum number of lines from other processes within a traceback."""
_REQUEST_FILES = frozenset({"http_server.py", "httptools_impl.py", "h11_impl.py", "routing.py"})
_LONGEST_MESSAGE = 8000

MakeFailure = Callable[[LogLine, str, str], LogFailure]
"""Function that makes a failure from its line, kind and message."""
Raised = Callable[[LogFailure, bool], None]
"""Callback for each exception; the flag is True if the exception ended a process."""


class _Traceback(Struct):
    """Traceback that is still being read."""

    head: str
    rank: str
    top: bool
    """True for a traceback of the engine's main process, which prints no header."""
    start: int
    frames: list[Frame] = []
    code: str = ""
    is_cut: bool = False
    """True if a new traceback began below the last frame; later source lines belong to the new
    traceback."""
    failure: LogFailure | None = None
    """Exception, once it has been read; its message may continue for some lines."""
    doubted: LogFailure | None = None
    """Exception that was followed by more frames. If another exception follows, one of the two
    belongs to another process."""
    extra: int = 0
    foreign: int = 0
    """Number of lines from other processes since the last frame."""
    reported: bool = False
    """True once an exception of this traceback was reported; a chained exception may follow."""

    @property
    def harmless(self) -> bool:
        return bool(_OF_REQUESTS.match(self.head) or _HARMLESS.match(self.head))

    def is_full_of_others(self) -> bool:
        """Count a line from another process; return True if too many came since the last frame."""
        self.foreign += 1
        return self.foreign > _MAX_FOREIGN_LINES

    @property
    def final(self) -> bool:
        """True if the text before the traceback shows that the exception ended the process."""
        if self.top:  # a request whose header is missing, else a process
            return self.frames[0].file not in _REQUEST_FILES if self.frames else True
        return "hit an exception" in self.head or self.head.startswith("Initialization failed")


class Tracebacks:
    """Reader of log lines without a header. It passes exceptions to `raised`."""

    def __init__(self, make: MakeFailure, raised: Raised) -> None:
        self._make = make
        self._raised = raised
        self._reading: _Traceback | None = None

    def begin(self, line: LogLine, head: str) -> None:
        """Begin a traceback. `head`: text before `Traceback (most recent call last):`, if any."""
        self.flush()
        top = not line.stamped and not _OF_REQUESTS.match(head)
        shown = head if line.stamped or not top else ""
        self._reading = _Traceback(shown, line.rank, top, line.number)

    def end(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None and (failure := reading.failure or reading.doubted) is not None:
            self._report(reading, failure)

    def interrupt(self) -> None:
        """Process a line with a header. It ends a message, or is another process's line within a
        traceback."""
        reading = self._reading
        if reading is None:
            return
        failure = reading.failure
        over = reading.reported if failure is None else not failure.ends_process
        if over or reading.is_full_of_others():
            self.end()

    def flush(self) -> None:
        """Pass the completed exception to `raised`."""
        if self._reading is not None and self._reading.failure is not None:
            self.end()

    def feed(self, line: LogLine, text: str) -> bool:
        """Process a line without a header; return True if it belongs to the current traceback."""
        reading = self._reading
        if reading is None:
            return False
        if reading.failure is not None:
            return self._after_exception(reading, reading.failure, line, text)
        if text.startswith(" "):
            _within(reading, text)
        elif text and not text.startswith((BEGIN, *_BETWEEN)):
            return self._exception(reading, line, text)
        elif text.startswith(BEGIN):
            reading.is_cut = bool(reading.code)
        return True

    def _after_exception(
        self, reading: _Traceback, failure: LogFailure, line: LogLine, text: str
    ) -> bool:
        """Process a line after an exception; return True if it belongs to the traceback."""
        if not text or text.startswith((BEGIN, *_BETWEEN)):
            self._report(reading, failure)
            reading.failure, reading.extra = None, 0
            reading.frames.clear()
            return True
        if _FRAME.match(text) or (not reading.code and text.startswith("    ")):
            reading.doubted, reading.failure, reading.extra = failure, None, 0
            _within(reading, text)
            return True
        if lone(text) is not None and not text.startswith("nccl"):  # as part of its message
            reading.doubted = reading.doubted or failure
            return self._exception(reading, line, text)
        if _is_complete(failure) or (
            reading.foreign and (may_be_logged(text) or may_be_printed(text))
        ):
            return False
        reading.extra += 1
        if reading.extra > _MAX_MESSAGE_LINES:
            self.end()
            return False
        reading.failure = replace(failure, message=f"{failure.message}\n{text}"[:_LONGEST_MESSAGE])
        return True

    def _exception(self, reading: _Traceback, line: LogLine, text: str) -> bool:
        found = _EXCEPTION.match(text[:4000])
        if reading.reported and not reading.frames:
            self._reading = None
            return False
        if found is None or _NO_EXCEPTION.match(text):
            if reading.is_full_of_others():
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

    def _report(self, reading: _Traceback, failure: LogFailure) -> None:
        reading.reported = True
        if reading.doubted is not None and reading.doubted is not failure:
            failure = replace(failure, contested=True)
            if not reading.harmless:
                self._raised(replace(reading.doubted, contested=True), reading.final)
        reading.doubted = None
        if not reading.harmless or failure.of_main_process:
            self._raised(failure, reading.final)


def _is_complete(failure: LogFailure) -> bool:
    """True if the exception has no message that could continue."""
    return not failure.message and failure.raw.rstrip().endswith(failure.kind)


def lone(text: str) -> tuple[str, str] | None:
    """Return the kind and message of an exception without a traceback; None for other lines."""
    found = _EXCEPTION.match(text[:4000])
    if found is None or not found["message"] or not found["kind"].endswith(_EXCEPTION_NAMES):
        return None
    return found["kind"].rpartition(".")[2], found["message"]


def _within(reading: _Traceback, text: str) -> None:
    frame = _FRAME.match(text)
    if frame is None:
        if text.strip(" ^~") and not reading.is_cut:  # skip marks beneath the source line
            reading.code = text.strip()[:400]
        return
    path = frame["path"].replace("\\", "/")
    reading.code, reading.is_cut = "", False
    reading.foreign = 0
    if len(reading.frames) >= _MAX_FRAMES:
        del reading.frames[_MAX_FRAMES // 2]
    reading.frames.append(Frame(path.rpartition("/")[2], frame["function"] or "", path))
