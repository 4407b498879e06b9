"""Lines of a log as the engine wrote them, without what terminals and collectors put around them.

The engine's own header is `[%(asctime)s{ranks}] %(message)s` in every release from 0.4.6.post5 to
0.5.23 (utils/common.py `configure_logger`), with `.%(msecs)03d` under SGLANG_LOG_MS; the ranks are
` DP0 PP0 ATTN_CP0 TP0 EP0`, each only where there are several (managers/scheduler.py).
"""

from __future__ import annotations

import codecs
import io
import json
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

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
