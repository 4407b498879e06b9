"""The engine's own last word: which line of its log says why it failed."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path

from speclaunch.launch.log.lines import read
from speclaunch.launch.log.marks import CONSEQUENCES, DEAD_PROCESS
from speclaunch.reads.bounded import open_regular

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
    try:
        with os.fdopen(open_regular(log)[0], "rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            return file.read(TAIL_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []


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
