"""Lines of a log as the engine wrote them, without what terminals and collectors put around them.

The engine's own header is `[%(asctime)s{ranks}] %(message)s` in every release from 0.4.6.post5 to
0.5.23 (utils/common.py `configure_logger`), with `.%(msecs)03d` under SGLANG_LOG_MS; the ranks are
` DP0 PP0 ATTN_CP0 TP0 EP0`, each only where there are several (managers/scheduler.py).
"""

from __future__ import annotations

import codecs
import io
import json
import os
import re
import signal
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from speclaunch.core import open_regular
from speclaunch.serving.launch.log.marks import CONSEQUENCES, DEAD_PROCESS

LONGEST = 32_768
"""Characters of a line that are looked at. `server_args=…` has some 20,000, its memory settings
are named early."""

_LONGEST_LINE = 1 << 16
"""A line without an end is read in pieces of this many bytes, so that memory stays bounded."""
_ENCODINGS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),  # what PowerShell's `>` writes
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_HEADER = re.compile(
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,6})?(?P<ranks>(?: [A-Z_]{2,8}\d{1,5}){0,6})\] "
)
_COLORS = re.compile(r"\x1b(?:\[[0-9;:?]{0,20}[ -/]{0,2}[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\))")
_ACTOR = re.compile(r"\((?P<name>[\w.:<>=-]{1,80} pid=\d{1,9}(?:, ip=[\w.:]{1,45})?)\) ?")
"""Ray: `(SGLangEngine pid=123, ip=10.0.0.1) `."""
_POD = re.compile(r"\[(?P<name>(?:pod|container|service)/[^\]\s]{1,250})\] ")
"""`kubectl logs --prefix`."""
_SERVICE = re.compile(r"(?P<name>[\w.-]{1,80}) {1,60}\| ?")
"""`docker compose logs`."""
_TIME = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d) "
    r"(?:(?:stdout|stderr) [FP] |[\w.-]{1,64} [\w./@-]{1,64}\[\d{1,9}\]: )?"
)
"""`docker logs -t`, the files of a container runtime, `journalctl -o short-iso`."""
_SYSLOG = re.compile(
    r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})? [\w.-]{1,64} "
    r"[\w./@-]{1,64}(?:\[\d{1,9}\])?: "
)
"""journald and syslog."""
_TASK = re.compile(r"\d{1,5}: (?=\[|Traceback|  |[A-Z]|[a-z_]+\.|$)")
"""`srun --label`."""
_AFTER_BAR = re.compile(r"\] ?(?=\[\d{4}-\d\d-\d\d \d\d:|Traceback \(most recent call last\):)")
_BAR = re.compile(r"\d{1,3}%[^%]{0,300}<[^%\]]{1,60}\]$")
"""A progress bar (`0%|   | 0/4 [00:00<?, ?it/s]`) has no end of line when an error follows it."""
_MOST_COLLECTORS = 4
"""A pod's lines within a compose file's within a journal: no deeper nesting is looked for."""


class LogLine(NamedTuple):
    """One line of the engine."""

    number: int
    """Counted from 1, as an editor counts."""
    raw: str
    """As it stands in the log."""
    text: str
    """What the engine said."""
    source: str
    """Which of several engines said it: the actor, pod or service that a collector names."""
    stamped: bool
    """Whether it has the engine's header; a traceback's lines have none."""
    rank: str
    """`DP0 TP1`; empty where there is one process only, and in lines without a header."""


def lines_of(file: io.BufferedReader) -> Iterator[str]:
    """The lines of a log, whatever bytes are in it; the end of an endless one is passed over."""
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
    """The engine's lines, in order. Progress bars drawn over each other are lines of their own."""
    match_header = _HEADER.match
    for number, given in enumerate(lines, 1):
        raw = given if len(given) <= LONGEST else given[:LONGEST]
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
    for _ in range(_MOST_COLLECTORS):
        around = None if header is not None else _collector(text)
        if around is None:
            break
        source = around.groupdict().get("name") or source
        text = text[around.end() :]
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
    """What stands behind a progress bar in the same line; the text itself where there is none."""
    bar = _AFTER_BAR.search(text)
    if bar is None or not _BAR.search(text, max(0, bar.start() - 400), bar.start() + 1):
        return text
    return text[bar.end() :]


def _collector(text: str) -> re.Match[str] | None:
    """What a collector put in front; the first characters say which one to look for."""
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
    """What a container said, from Docker's own file: `{"log":"…\\n","stream":…}`."""
    try:
        said = json.loads(text)["log"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return text
    return said.rstrip("\r\n") if isinstance(said, str) else text


_MOST_BYTES = 4 << 20
_LONGEST_PIECE = 1 << 16
_HEAD_BYTES = 1 << 20
_TAIL_BYTES = 4 << 20
_UNFINISHED_BYTES = 4096


class Follower:
    """Reads what has been added to a growing log file, by whole lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._rest = b""
        self.is_behind = False
        """More was added than one call returns."""

    def lines(self) -> list[str]:
        """The lines that were completed since the last call, of 4 MiB at most; `is_behind` shows
        that there are more. A line longer than 64 KiB comes in pieces."""
        parts, left = [self._rest], _MOST_BYTES
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
            whole = len(self._rest) // _LONGEST_PIECE * _LONGEST_PIECE
            lines.append(self._rest[:whole])
            self._rest = self._rest[whole:]
        return [
            line[start : start + _LONGEST_PIECE].decode(errors="replace")
            for line in lines
            for start in range(0, len(line), _LONGEST_PIECE)
        ]

    @property
    def unfinished(self) -> str:
        """What stands after the last whole line: a progress bar that is drawn over, say."""
        return self._rest[-_UNFINISHED_BYTES:].decode(errors="replace")

    def close(self) -> None:
        """Let go of the file; the next call begins with the file of that name."""
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
        """Append what was added to the file; its size."""
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
        """Whether another file has the name now. A file that is gone altogether is read on."""
        assert self._file is not None  # noqa: S101 - for the type checker
        try:
            now = self._path.stat()
        except OSError:
            return False
        return not os.path.samestat(now, os.fstat(self._file.fileno()))


def log_files(log: Path) -> list[Path]:
    """A log and the files that were put aside for it, the oldest first."""
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
    """The lines of a log, those put aside included; of a very long one its beginning and end."""
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
    """At most `size` bytes of a file after `offset`; whether there is more than that."""
    try:
        with os.fdopen(open_regular(path)[0], "rb") as file:
            length = file.seek(0, 2)
            file.seek(max(offset, length - size) if from_end else offset)
            return file.read(size), length > offset + size
    except OSError:
        return b"", False


TAIL_BYTES = 256 * 1024

_EXCEPTION = re.compile(
    # one class of characters, bounded: no line, however long, can make it slow
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
    """The last lines of a log; none when it cannot be read."""
    data, _ = _read_part(log, 0, TAIL_BYTES, from_end=True)
    return data.decode(errors="replace").splitlines()


def last_error(lines: Sequence[str]) -> str | None:
    """The line that says why the engine failed, or None when none does.

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
    """Which process of the engine ended first, when its watchdog says so (utils/watchdog.py)."""
    for line in lines:
        found = _DEAD_PROCESS.search(line)
        if found:
            code = int(found["code"])
            how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
            return f"its {found['name']} (process {found['pid']}) ended: {how}"
    return None


def describe_exit(code: int | None) -> str:
    """An exit code in words, when the engine printed no error."""
    if code is None:
        return "the engine ended"
    if code < 0:
        name = signal.Signals(-code).name if -code in signal.valid_signals() else str(-code)
        hint = " (often: the machine ran out of memory)" if -code == signal.SIGKILL else ""
        return f"the engine was ended by {name}{hint} and printed no error"
    return f"the engine ended with exit code {code} and printed no error"


def _with_source(line: str, lines: Sequence[str], index: int) -> str:
    """`AssertionError` becomes `AssertionError: assert x (file.py:12)`."""
    for above in range(index - 1, max(-1, index - 8), -1):
        frame = _FRAME.match(lines[above])
        if frame:
            source = lines[above + 1].strip() if above + 1 < index else ""
            place = f"{Path(frame['file']).name}:{frame['line']}"
            return f"{line}: {source} ({place})" if source else f"{line} ({place})"
    return line
