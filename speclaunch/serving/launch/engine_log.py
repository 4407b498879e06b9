"""The engine's log: its lines, without decorations, and its messages about a start.

The engine's header is `[%(asctime)s{ranks}] %(message)s` in every release from 0.4.6.post5 to
0.5.23 (utils/common.py `configure_logger`), with `.%(msecs)03d` under SGLANG_LOG_MS. The ranks are
` DP0 PP0 ATTN_CP0 TP0 EP0`, each only if there are several (managers/scheduler.py).

`PATTERNS` is the only table of messages. The phases of a launch and the diagnosis both use it. At
`--log-level warning` the engine prints no such message, so readiness is queried over HTTP and never
read from the log.

Sources (log statements of the released wheels, 0.4.6.post5 to 0.5.23):
model_executor/model_runner.py (weights, capture up to 0.5.16), mem_cache/memory_pool.py (pool),
model_runner_components/cuda_graph_setup.py (capture from 0.5.17), speculative/eagle_worker*.py
(draft capture), managers/scheduler.py (summary), entrypoints/http_server.py (ready).
"""

from __future__ import annotations

import codecs
import io
import json
import os
import re
import signal
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, StrEnum, auto
from pathlib import Path
from typing import BinaryIO, NamedTuple

from speclaunch.core import open_regular


class Phase(StrEnum):
    """Phase of an engine's start. Users see its value."""

    IMPORTS = "import SGLang"
    SCHEDULER = "start scheduler"
    WEIGHTS = "load target weights"
    DRAFT_WEIGHTS = "load draft weights"
    KV_POOL = "allocate KV cache"
    GRAPHS = "capture CUDA graphs"
    WARM_UP = "warm up"
    READY = "ready"


class LogMark(Enum):
    """Engine event that a log line reports."""

    ARGUMENTS = auto()
    BASELINE = auto()
    LOAD_BEGIN = auto()
    LOAD_END = auto()
    POOL = auto()
    POOL_END = auto()
    CAPTURE_BEGIN = auto()
    CAPTURE_END = auto()
    SUMMARY = auto()
    SERVING = auto()
    READY = auto()
    BATCH = auto()
    STOP = auto()
    DEATH = auto()


BATCH = re.compile(r"(?:Decode|Prefill) batch\b")
"""Scheduler's line for every n-th batch: managers/scheduler_metrics_mixin.py, all versions from
0.4.6 to 0.5.23, at `--log-level info`."""
DEAD_PROCESS = r"Subprocess (?P<name>\S{1,80}) \(pid=(?P<pid>\d{1,9})\) crashed with exit code "
"""Message of the watchdog in the engine's parent process: a child crashed (utils/watchdog.py)."""
PORT_TAKEN = r"\[Errno 98\] (?:error while attempting to bind on address|[Aa]ddress already in use)"
"""Messages of asyncio and the kernel about a port in use. The engine does not exit then (seen on
0.5.23)."""
AFTERMATH = re.compile(
    # messages of the parent and the siblings of a process that failed
    r"Initialization failed\. Please see the error messages above"
    r"|(?:asyncio\.exceptions\.)?CancelledError"
    r"|cancelled by|Event loop (?:is closed|stopped)"
)
CONSEQUENCES = frozenset(
    {"EOFError", "KeyboardInterrupt", "CancelledError", "BrokenPipeError", "ConnectionResetError"}
)
"""Exceptions that follow a failure and are never its cause (engine.py, watchdog.py of 0.5.23)."""

_GB = r"(?P<{}>-?[\d.]{{1,12}}) GB"
PATTERNS: tuple[tuple[LogMark, re.Pattern[str]], ...] = (
    (LogMark.ARGUMENTS, re.compile(r"server_args=(?:ServerArgs\(|\{)")),
    (LogMark.BASELINE, re.compile(r"(?:Init torch distributed ends\.|Memory baseline taken\.)")),
    (LogMark.LOAD_BEGIN, re.compile(r"Load weight begin\. avail mem=" + _GB.format("avail_gb"))),
    (
        LogMark.LOAD_END,
        re.compile(
            r"Load weight end\. (?:elapsed=[\d.]{1,12} s, )?type=(?P<type>\w{1,200})"
            r"(?:.*?avail mem=" + _GB.format("avail_gb") + r")?"
            r"(?:.*?mem usage=" + _GB.format("used_gb") + r")?"
        ),
    ),
    (
        LogMark.POOL,
        re.compile(
            r"(?:[\w /-]{1,60} )?KV Cache (?:is allocated|VA upper bound)\."
            r".*?#tokens: (?P<tokens>\d{1,15})"
        ),
    ),
    (LogMark.POOL_END, re.compile(r"Memory pool end\. avail mem=" + _GB.format("avail_gb"))),
    (
        LogMark.CAPTURE_BEGIN,
        re.compile(
            r"(?i:Capture (?P<what>[\w -]{0,60}?)(?:cuda|cpu) graph begin)"
            r"(?:.*?avail mem=" + _GB.format("avail_gb") + r")?"
        ),
    ),
    (
        LogMark.CAPTURE_END,
        re.compile(
            r"(?i:Capture (?P<what>[\w -]{0,60}?)(?:cuda|cpu) graph end)"
            r"(?:.*?mem usage=" + _GB.format("used_gb") + r")?"
        ),
    ),
    (
        LogMark.SUMMARY,
        re.compile(
            r"max_total_num_tokens=(?P<tokens>\d{1,15}), .*?"
            r"max_running_requests=(?P<requests>\d{1,9}), context_len=(?P<context_length>\d{1,12})"
            r"(?:, available_(?:gpu|cpu)_mem=" + _GB.format("avail_gb") + r")?"
        ),
    ),
    (
        LogMark.SERVING,
        re.compile(
            r"INFO: +(?:Started server process|Application startup complete|Uvicorn running on)"
        ),
    ),
    (LogMark.READY, re.compile(r"The server is fired up and ready to roll!")),
    (
        LogMark.STOP,
        re.compile(
            r"SIGTERM received\. (?:signum=|Draining)|Gracefully exiting\.\.\. Remaining number"
            r"|INFO: +Shutting down$"
        ),
    ),
    (
        LogMark.DEATH,
        re.compile(
            r"Received sigquit from a child process\. It usually means"
            r"|SIGQUIT received\. signum="
            r"|kill_process_tree called: .*include_parent=True"
            r"|" + DEAD_PROCESS
        ),
    ),
)
_MARK_STARTS = (
    "server_args=", "Init torch", "Memory ", "Load weight", "KV Cache", "Capture ", "max_total_num",
    "INFO:     Started server", "INFO:     Application startup", "INFO:     Uvicorn running",
    "INFO:     Shutting down", "The server is", "SIG", "Gracefully", "Received sig",
    "kill_process", "Subprocess ",
)  # fmt: skip
PHASES = {
    LogMark.ARGUMENTS: Phase.SCHEDULER,
    LogMark.BASELINE: Phase.SCHEDULER,
    LogMark.POOL: Phase.KV_POOL,
    LogMark.POOL_END: Phase.KV_POOL,
    LogMark.CAPTURE_BEGIN: Phase.GRAPHS,
    LogMark.CAPTURE_END: Phase.GRAPHS,
    LogMark.SUMMARY: Phase.WARM_UP,
    LogMark.SERVING: Phase.WARM_UP,
    LogMark.READY: Phase.READY,
}


def may_be_milestone(text: str) -> bool:
    """True if the beginning of a line suggests a milestone."""
    return text.startswith(_MARK_STARTS) or " KV Cache " in text[:80]


def mark_of(text: str) -> tuple[LogMark, re.Match[str]] | None:
    """Return the mark and match of a log line (without header); None if there is no mark."""
    if may_be_milestone(text):
        for mark, pattern in PATTERNS:
            found = pattern.match(text)
            if found is not None:
                return mark, found
    return None


LONGEST = 32_768
"""Maximum number of characters inspected per line. The `server_args=…` line has about 20,000, with
the memory settings near the beginning."""

_LONGEST_LINE = 1 << 16
"""Maximum bytes per piece of an endless line, to bound memory use."""
_ENCODINGS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),  # from PowerShell's `>`
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_HEADER = re.compile(
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,6})?(?P<ranks>(?: [A-Z_]{2,8}\d{1,5}){0,6})\] "
)
_COLORS = re.compile(r"\x1b(?:\[[0-9;:?]{0,20}[ -/]{0,2}[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\))")
_ACTOR = re.compile(r"\((?P<name>[\w.:<>=-]{1,80} pid=\d{1,9}(?:, ip=[\w.:]{1,45})?)\) ?")
"""Line prefix of Ray: `(SGLangEngine pid=123, ip=10.0.0.1) `."""
_POD = re.compile(r"\[(?P<name>(?:pod|container|service)/[^\]\s]{1,250})\] ")
"""Line prefix of `kubectl logs --prefix`."""
_SERVICE = re.compile(r"(?P<name>[\w.-]{1,80}) {1,60}\| ?")
"""Line prefix of `docker compose logs`."""
_TIME = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d) "
    r"(?:(?:stdout|stderr) [FP] |[\w.-]{1,64} [\w./@-]{1,64}\[\d{1,9}\]: )?"
)
"""Line prefix of `docker logs -t`, container runtimes and `journalctl -o short-iso`."""
_SYSLOG = re.compile(
    r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})? [\w.-]{1,64} "
    r"[\w./@-]{1,64}(?:\[\d{1,9}\])?: "
)
"""Line prefix of journald and syslog."""
_TASK = re.compile(r"\d{1,5}: (?=\[|Traceback|  |[A-Z]|[a-z_]+\.|$)")
"""Line prefix of `srun --label`."""
_AFTER_BAR = re.compile(r"\] ?(?=\[\d{4}-\d\d-\d\d \d\d:|Traceback \(most recent call last\):)")
_BAR = re.compile(r"\d{1,3}%[^%]{0,300}<[^%\]]{1,60}\]$")
"""Progress bar (`0%|   | 0/4 [00:00<?, ?it/s]`). An error may follow on the same line."""
_MAX_COLLECTORS = 4
"""Maximum number of collectors' prefixes on a line, for example journald, Compose and a pod."""


class LogLine(NamedTuple):
    """Line of an engine's log, split into source, rank and text."""

    number: int
    """Line number, starting at 1."""
    raw: str
    text: str
    """Text of the line, without prefixes and the engine's header."""
    source: str
    """Actor, pod or service in the log collector's prefix, which distinguishes engines."""
    stamped: bool
    """True if the line has the engine's header; a traceback's lines have none."""
    rank: str
    """Rank, for example `DP0 TP1`; empty for a single process or a line without a header."""


def lines_of(file: io.BufferedReader) -> Iterator[str]:
    """Yield the lines of a log, which may contain any bytes. Overlong lines are truncated."""
    start = file.peek(4)[:4]
    encoding = next((name for mark, name in _ENCODINGS if start.startswith(mark)), None)
    goes_on = False
    if encoding is not None:
        with io.TextIOWrapper(file, encoding=encoding, errors="replace", newline="\n") as text:
            while piece := text.readline(_LONGEST_LINE):
                if not goes_on:
                    yield piece
                goes_on = not piece.endswith("\n")
        return
    while line := file.readline(_LONGEST_LINE):
        if not goes_on:
            yield line.decode(errors="replace")
        goes_on = not line.endswith(b"\n")


def read(lines: Iterable[str]) -> Iterator[LogLine]:
    """Yield the engine's lines in order. Each redraw of a progress bar is a separate line."""
    match_header = _HEADER.match
    for number, line in enumerate(lines, 1):
        raw = line if len(line) <= LONGEST else line[:LONGEST]
        header = match_header(raw)
        if header is not None and "\r" not in raw and "\x1b" not in raw:
            ranks = header["ranks"]
            text = raw[header.end() :].rstrip("\n")
            yield LogLine(number, raw, text, "", True, ranks[1:] if ranks else "")
            continue
        for piece in raw.rstrip("\r\n").split("\r"):
            yield _unwrapped(number, piece)


def _unwrapped(number: int, raw: str) -> LogLine:
    text = _COLORS.sub("", raw) if "\x1b" in raw else raw
    if text.startswith('{"log":"'):
        text = _docker_json(text)
    source = ""
    header = _HEADER.match(text)
    for _ in range(_MAX_COLLECTORS):
        collector = None if header is not None else _collector(text)
        if collector is None:
            break
        source = collector.groupdict().get("name") or source
        text = text[collector.end() :]
        header = _HEADER.match(text)
    if header is None and "%" in text:
        text = _behind_bar(text)
        header = _HEADER.match(text)
    if header is None:
        return LogLine(number, raw, text.rstrip(), source, False, "")
    return LogLine(
        number, raw, text[header.end() :].rstrip(), source, True, header["ranks"].strip()
    )


def _behind_bar(text: str) -> str:
    bar = _AFTER_BAR.search(text)
    if bar is None or not _BAR.search(text, max(0, bar.start() - 400), bar.start() + 1):
        return text
    return text[bar.end() :]


def _collector(text: str) -> re.Match[str] | None:
    """Return the match of a log collector's line prefix (Ray, docker, srun, …), or None."""
    first = text[:1]
    if first == "(":
        return _ACTOR.match(text)
    if first == "[":
        return _POD.match(text)
    if first.isdigit():
        return _TIME.match(text) or _TASK.match(text)
    if text[6:7].isspace() or text[6:7].isdigit():
        found = _SYSLOG.match(text)
        if found is not None:
            return found
    return _SERVICE.match(text) if "|" in text[:150] else None


def _docker_json(text: str) -> str:
    try:
        printed = json.loads(text)["log"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return text
    return printed.rstrip("\r\n") if isinstance(printed, str) else text


_MAX_BYTES = 4 << 20
_LONGEST_PIECE = 1 << 16
_HEAD_BYTES = 1 << 20
_TAIL_BYTES = 4 << 20
_UNFINISHED_BYTES = 4096


class Follower:
    """Reader of complete lines added to a growing log file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._rest = b""
        self.is_behind = False
        """True if the file has more new lines than the last call returned."""

    def lines(self) -> list[str]:
        """Return the lines completed since the last call, up to 4 MiB. `is_behind` is set if there
        are more. A line longer than 64 KiB is split."""
        parts, left = [self._rest], _MAX_BYTES
        while self._file is not None or self._open():
            left -= self._read(parts, left)
            if left <= 0 or not self._rotated():
                break
            left -= self._read(parts, left)  # written between the read above and the rotation
            if left <= 0:
                break
            self.close()
        self.is_behind = left <= 0
        *lines, self._rest = b"".join(parts).replace(b"\r", b"\n").split(b"\n")
        if len(self._rest) >= _LONGEST_PIECE:
            complete = len(self._rest) // _LONGEST_PIECE * _LONGEST_PIECE
            lines.append(self._rest[:complete])
            self._rest = self._rest[complete:]
        return [
            line[start : start + _LONGEST_PIECE].decode(errors="replace")
            for line in lines
            for start in range(0, len(line), _LONGEST_PIECE)
        ]

    @property
    def unfinished(self) -> str:
        """Text after the last complete line, such as a progress bar being redrawn."""
        return self._rest[-_UNFINISHED_BYTES:].decode(errors="replace")

    def close(self) -> None:
        """Close the file. The next `lines()` reopens the path."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> bool:
        try:
            self._file = os.fdopen(open_regular(self._path)[0], "rb")
        except OSError:
            return False
        return True

    def _read(self, parts: list[bytes], most: int) -> int:
        file = self._file
        assert file is not None  # noqa: S101 - for the type checker
        try:
            if os.fstat(file.fileno()).st_size < file.tell():
                file.seek(0)  # it was emptied
            parts.append(file.read(most))
        except OSError:
            return 0
        return len(parts[-1])

    def _rotated(self) -> bool:
        """True if the path now names a different file; False if the file was only deleted."""
        assert self._file is not None  # noqa: S101 - for the type checker
        try:
            now = self._path.stat()
        except OSError:
            return False
        return not os.path.samestat(now, os.fstat(self._file.fileno()))


def log_files(log: Path) -> list[Path]:
    """Return a log and its rotated files, oldest first."""
    aside: list[tuple[int, Path]] = []
    try:
        for path in log.parent.iterdir():
            number = path.name.removeprefix(f"{log.name}.")
            if number != path.name and number.isdigit():
                aside.append((int(number), path))
    except OSError:
        return []
    found = [path for _, path in sorted(aside, reverse=True)]
    return [*found, log] if log.exists() else found


def read_log(log: Path) -> Iterator[str]:
    """Yield the lines of a log and its rotated files; of a very long log, only the beginning and
    the end."""
    files = log_files(log)
    if not files:
        return
    head, skipped = _read_part(files[0], 0, _HEAD_BYTES)
    data = head
    if skipped or len(files) > 1:
        tail = b""
        for path in reversed(files):
            offset = len(head) if path == files[0] else 0
            part, _ = _read_part(path, offset, _TAIL_BYTES - len(tail), from_end=True)
            tail = part + tail
            if len(tail) >= _TAIL_BYTES:
                break
        data = head + tail
    for line in data.replace(b"\r", b"\n").split(b"\n"):
        if line:
            yield line.decode(errors="replace")


def _read_part(path: Path, offset: int, size: int, *, from_end: bool = False) -> tuple[bytes, bool]:
    """Return the first or last `size` bytes after `offset`, and True if the file has more."""
    try:
        with os.fdopen(open_regular(path)[0], "rb") as file:
            length = file.seek(0, 2)
            file.seek(max(offset, length - size) if from_end else offset)
            return file.read(size), length > offset + size
    except OSError:
        return b"", False


TAIL_BYTES = 256 * 1024

_EXCEPTION = re.compile(
    # one class of characters, bounded: no line can make it slow
    r"^(?=[A-Za-z_])[\w.]{0,200}?(?:Error|Exception|Interrupt|Exit|NotFound|Iteration)"
    r"(?P<text>: .*)?$"
)
_ARGPARSE = re.compile(r"^[\w./ -]{1,300}: error: .+")
_BIND = re.compile(r"\[Errno \d+\] .*")
_FRAME = re.compile(r'^ +File "(?P<file>[^"]+)", line (?P<line>\d+), in ')

_DEAD_PROCESS = re.compile(DEAD_PROCESS + r"(?P<code>-?\d{1,9})")
_FOLLOWS = re.compile(
    "|".join(
        (
            *(rf"\b{kind}\b" for kind in sorted(CONSEQUENCES)),
            r"Initialization failed\. Please see the error messages above",
            "scheduler died during initialization",
            "Ignore import error",  # printed for every model that lacks a package
        )
    )
)


def read_tail(log: Path) -> list[str]:
    """Return the lines in the last `TAIL_BYTES` of a log; empty if it is unreadable."""
    data, _ = _read_part(log, 0, TAIL_BYTES, from_end=True)
    return data.decode(errors="replace").splitlines()


def last_error(lines: Sequence[str]) -> str | None:
    """Return the line with the engine's error; None if there is no error.

    An exception without a message (`AssertionError`) gets the source line that raised it.
    """
    texts = [line.text for line in read(lines)]
    for index in range(len(texts) - 1, -1, -1):
        line = texts[index]
        if _FOLLOWS.search(line):
            continue
        match = _EXCEPTION.match(line)
        if match:
            return line if match["text"] else _with_source(line, texts, index)
        if _ARGPARSE.match(line):
            return line
        bind = _BIND.search(line)
        if bind and "rror" in line:
            return bind[0]
    return None


def dead_process(lines: Sequence[str]) -> str | None:
    """Describe the first dead process that the engine's watchdog reports (utils/watchdog.py); None
    if it reports none."""
    for line in lines:
        found = _DEAD_PROCESS.search(line)
        if found:
            code = int(found["code"])
            how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
            return f"its {found['name']} (process {found['pid']}) ended: {how}"
    return None


def describe_exit(code: int | None) -> str:
    """Describe an exit that left no error message. `code`: None if unknown."""
    if code is None:
        return "the engine ended"
    if code < 0:
        name = signal.Signals(-code).name if -code in signal.valid_signals() else str(-code)
        hint = " (often: the machine ran out of memory)" if -code == signal.SIGKILL else ""
        return f"the engine was ended by {name}{hint} and printed no error"
    return f"the engine ended with exit code {code} and printed no error"


def _with_source(line: str, lines: Sequence[str], index: int) -> str:
    """Return an error line with its source: `AssertionError: assert x (file.py:12)`."""
    for above in range(index - 1, max(-1, index - 8), -1):
        frame = _FRAME.match(lines[above])
        if frame:
            source = lines[above + 1].strip() if above + 1 < index else ""
            place = f"{Path(frame['file']).name}:{frame['line']}"
            return f"{line}: {source} ({place})" if source else f"{line} ({place})"
    return line
