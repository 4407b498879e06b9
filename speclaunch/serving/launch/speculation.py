"""Speculation of a serving engine, from its log: acceptance over time, and drops in it.

Reading the log costs the engine nothing and needs no `--enable-metrics`. An engine that logs no
decode steps (`--log-level warning`) has no course.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from speclaunch.core import children
from speclaunch.serving.launch.watchdog import LaunchThread
from speclaunch.serving.metrics import (
    INTERVAL,
    USUAL_INTERVAL,
    AcceptanceChange,
    AcceptanceSample,
    AcceptanceTest,
    RankMetrics,
    decode_batch,
)

if TYPE_CHECKING:
    from speclaunch.engine import RenderedArgs

_POINTS = 120
_FIRST_SECONDS = 5.0
_MOST_RANKS = 64
_MOST_REQUESTS = 1 << 20
_ADAPTIVE = "speculative_adaptive"
HOOK_SECONDS = 30.0
_INHERITED = ("PATH", "HOME", "LANG", "TZ")
"""Environment variables passed to a hook. None contains a secret."""


class Course(Struct):
    """Means over equal periods since the engine was ready. When the course is full, the period
    doubles.
    """

    seconds: float = _FIRST_SECONDS
    _points: list[tuple[float, float, float, int]] = field(default_factory=list)
    """Sums per period: length times steps, steps, tokens per second, lines."""

    def add(self, at: float, batch: RankMetrics, steps: float) -> None:
        """Add a line that was read `at` seconds after the engine was ready."""
        while at >= self.seconds * _POINTS:
            pairs = zip(self._points[::2], [*self._points[1::2], _EMPTY], strict=False)
            self._points = [_sum(*pair) for pair in pairs]
            self.seconds *= 2
        index = max(0, int(at / self.seconds))
        self._points += [_EMPTY] * (index + 1 - len(self._points))
        length = batch.accept_length
        point = (length * steps, steps) if length else (0.0, 0.0)
        new = (*point, batch.tokens_per_second or 0.0, 1)
        self._points[index] = _sum(self._points[index], new)

    def document(self) -> dict[str, Any]:
        """Return the course for the journal. A period without decode steps is null."""
        return {
            "seconds": self.seconds,
            "accept_length": [
                round(total / steps, 3) if steps else None for total, steps, _, _ in self._points
            ],
            "tokens_per_second": [
                round(speed / lines, 1) if lines else None for _, _, speed, lines in self._points
            ],
        }


_EMPTY = (0.0, 0.0, 0.0, 0)


def _sum(
    item: tuple[float, float, float, int], other: tuple[float, float, float, int]
) -> tuple[float, float, float, int]:
    return (item[0] + other[0], item[1] + other[1], item[2] + other[2], item[3] + other[3])


class SpeculationMonitor(Struct):
    """Monitor of successive engines. Engines with equal settings share a baseline."""

    _tests: dict[str, AcceptanceTest] = field(default_factory=dict)
    _course: Course = field(default_factory=Course)
    _before: dict[str, float] = field(default_factory=dict)
    _settings: object = None
    _interval: int = USUAL_INTERVAL
    _is_tested: bool = True

    def begin(self, rendered: RenderedArgs, settings: object) -> None:
        """Begin to monitor a new engine. Adaptive speculation is not tested, because it changes its
        own length.
        """
        if settings != self._settings:
            self._tests = {}
        for test in self._tests.values():
            test.restart()
        self._settings, self._course, self._before = settings, Course(), {}
        interval = rendered.value(INTERVAL) or ""
        self._interval = int(interval) if interval.isdecimal() else USUAL_INTERVAL
        self._is_tested = rendered.value(_ADAPTIVE) in (None, "false")

    def read(self, lines: Sequence[str], seconds: float) -> list[tuple[str, AcceptanceChange]]:
        """Return the changes that these lines complete, with their ranks (empty for a single rank).

        `seconds`: time since the engine was ready.
        """
        found = []
        for line in lines:
            batch = decode_batch(line)
            if batch is None:
                continue
            # A request that began or ended meanwhile was in only some of the steps.
            running = min(batch.running or 1, self._before.get(batch.rank, _MOST_REQUESTS))
            self._before[batch.rank] = batch.running or 1
            steps = self._interval * max(1, running)
            self._course.add(seconds, batch, steps)
            if batch.accept_length is None or not self._is_tested:
                continue
            if batch.rank not in self._tests and len(self._tests) >= _MOST_RANKS:
                continue
            test = self._tests.setdefault(batch.rank, AcceptanceTest())
            change = test.add(AcceptanceSample(batch.accept_length, steps))
            if change is not None:
                found.append((batch.rank, change))
        return found

    def document(self) -> dict[str, Any]:
        """Return the course and the baselines by rank for the journal."""
        baselines = {
            rank: {"accept_length": round(test.baseline.length, 3), "steps": test.baseline.steps}
            for rank, test in self._tests.items()
            if test.baseline is not None
        }
        return {**self._course.document(), "baselines": baselines}


def run_hook(program: Path, facts: Mapping[str, object], log: Path) -> LaunchThread:
    """Run a user's program in a thread, with the facts as environment variables. Its output goes to
    `log`.

    It receives no arguments, input or secrets, and is killed after `HOOK_SECONDS`.
    """
    env = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    env |= {f"SPECLAUNCH_{name.upper()}": str(value) for name, value in facts.items()}

    def run() -> None:
        with log.open("ab") as output:
            try:
                child = children.start(
                    [program], env=env, stdout=output, stderr=output, start_new_session=True
                )
            except OSError as error:
                output.write(f"{program}: {error.strerror}\n".encode())
                return
            try:
                child.wait(HOOK_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, 9)
                child.wait()
                output.write(f"{program}: killed after {HOOK_SECONDS:g} s\n".encode())

    thread = LaunchThread("the hook", run)
    thread.start()
    return thread
