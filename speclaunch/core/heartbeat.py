"""Progress lines for operations that take minutes.

Used when output is not a terminal and shows no spinner. The worker either calls `beat` in its loop,
or uses a thread (`beating`) while it waits.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

EVERY_SECONDS = 15.0
"""Default interval without output before a progress line."""

_ANNOUNCED = re.compile(r"\((?P<number>\d+(?:\.\d+)?) (?P<unit>[kMG]?B|bytes)\)\s*$")
_UNITS = {"bytes": 1, "B": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3}
"""Bytes per unit. pip uses decimal units (pip/_internal/utils/misc.py, `format_size`)."""


class Heartbeat:
    """Calls `report(text(seconds since creation))` after `every` seconds without output.

    An empty text is not reported. A `report` that fails (a closed pipe) is not called again,
    because progress output must not end the operation.
    """

    def __init__(
        self,
        report: Callable[[str], None],
        text: Callable[[float], str],
        *,
        every: float = EVERY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._report, self._text, self._every, self._clock = report, text, every, clock
        self._began = self._last_output = clock()
        self._is_broken = False

    def note_output(self) -> None:
        """Restart the interval after other output."""
        self._last_output = self._clock()

    def beat(self) -> bool:
        """Report progress if due, and return True if reported. Cheap enough for a tight loop."""
        now = self._clock()
        if self._is_broken or now - self._last_output < self._every:
            return False
        self._last_output = now
        text = self._text(now - self._began)
        if not text:
            return False
        try:
            self._report(text)
        except (OSError, ValueError):
            self._is_broken = True
            return False
        return True


@contextlib.contextmanager
def beating(
    report: Callable[[str], None], text: Callable[[float], str], *, every: float = EVERY_SECONDS
) -> Iterator[Heartbeat]:
    """Report progress from a thread during the block (see `Heartbeat`).

    `report` and `text` are called in that thread.
    """
    heartbeat = Heartbeat(report, text, every=every)
    over = threading.Event()

    def run() -> None:
        while not over.wait(min(1.0, every / 4)):
            heartbeat.beat()

    thread = threading.Thread(target=run, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield heartbeat
    finally:
        over.set()
        thread.join()


class Growth:
    """Bytes added to `folders` since this object was created, and their rate.

    Counts only files whose names end with `suffix`, including those deleted later, such as unpacked
    downloads.
    """

    def __init__(
        self,
        *folders: Path,
        expected: int | None = None,
        suffix: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.expected = expected
        """Total number of bytes to expect; None if unknown. May be set or increased later."""
        self._folders, self._suffix, self._clock = folders, suffix, clock
        self._sizes: dict[str, int] = {}
        self._before = self._count()
        self._last = (clock(), 0)

    def text(self) -> str:
        """Return `1.2 of 3.6 GB, 38 MB/s, about 1 min left`, with the rate since the last call."""
        now, had = self._last
        bytes_, at = self._count() - self._before, self._clock()
        self._last = (at, bytes_)
        speed = (bytes_ - had) / (at - now) if at > now else 0.0
        return amount(bytes_, self.expected, speed)

    def _count(self) -> int:
        for folder in self._folders:
            for base, _, names in os.walk(folder):
                for name in filter(lambda name: name.endswith(self._suffix), names):
                    path = f"{base}/{name}"
                    with contextlib.suppress(OSError):
                        size = os.lstat(path).st_size
                        self._sizes[path] = max(size, self._sizes.get(path, 0))
        return sum(self._sizes.values())


def amount(done: int, expected: int | None, speed: float) -> str:
    """Return text like `1.2 of 3.6 GB, 38 MB/s, about 1 min left`. `speed`: bytes per second."""
    if expected is not None and expected >= done:
        unit = _unit(expected)
        parts = [f"{done / unit[0]:.1f} of {expected / unit[0]:.1f} {unit[1]}"]
    else:
        parts = [f"{size(done)} so far"]
    if speed >= 1:
        parts.append(f"{size(speed)}/s")
        if expected is not None and expected > done:
            parts.append(f"about {duration((expected - done) / speed)} left")
    return ", ".join(parts)


def size(bytes_: float) -> str:
    """Return a size in decimal units, like pip and disk vendors: `38 MB`, `1.2 GB`."""
    factor, unit = _unit(bytes_)
    number = bytes_ / factor
    return f"{number:.1f} {unit}" if factor > _UNITS["MB"] else f"{number:.0f} {unit}"


def duration(seconds: float) -> str:
    """Return a duration as text: `40 s`, `3 min 20 s`, `1 h 5 min`, `2 d 3 h`."""
    total = max(0, int(seconds))
    days, hours, minutes = total // 86400, total // 3600 % 24, total // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {total % 60} s" if minutes else f"{total} s"


def announced_bytes(line: str) -> int | None:
    """Return the bytes in pip's `Downloading torch-….whl (915.2 MB)`; None for any other line."""
    found = _ANNOUNCED.search(line)
    if found is None or not line.lstrip().startswith("Downloading "):
        return None
    return int(float(found["number"]) * _UNITS[found["unit"]])


def _unit(bytes_: float) -> tuple[int, str]:
    for unit in ("GB", "MB", "kB"):
        if bytes_ >= _UNITS[unit]:
            return _UNITS[unit], unit
    return 1, "B"
