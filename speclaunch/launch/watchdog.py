"""Whether a serving engine still generates: asked with a real request, off the hot path.

`/health` is no proof: it answers 200 while generation hangs (its handler only asks the HTTP
process). So the engine is asked for one token, in a thread of its own, and only after it has shown
no progress by itself: no batch in its log, no change of its counters. A busy engine that is slow
to answer shows progress, and is left alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from speclaunch.launch.launch_thread import LaunchThread
from speclaunch.launch.log.marks import BATCH
from speclaunch.record import record

if TYPE_CHECKING:
    from speclaunch.recipe.schema import WatchdogSection as Settings


class ProbeAnswer(StrEnum):
    """What came of asking for one token."""

    GENERATED = "generated"
    BUSY = "busy"
    """It answers that it can take no request now (429, 503 of a full queue)."""
    UNFIT = "unfit"
    """It says that it does not take such a request at all: nothing can be told from that."""
    FAILED = "failed"
    SILENT = "silent"


class Probe(Protocol):
    """How an engine is asked."""

    def generate(self, timeout: float) -> ProbeAnswer:
        """Ask for one token."""

    def counters(self) -> object:
        """What the engine says of its own progress; None where it says nothing. Equal values in
        turn mean no progress."""


@record(frozen=False)
class Judge:
    """Decides from what was seen; knows no engine and no clock. Pure but for its memory."""

    settings: Settings
    armed: bool = False
    """Whether it has ever generated: only then silence means anything."""
    last_progress: float = 0.0
    failures: int = 0
    reason: str = ""

    def progress(self, now: float) -> None:
        """The engine itself showed that it works."""
        self.last_progress = now
        self.failures = 0

    def due(self, now: float) -> bool:
        """Whether the engine should be asked."""
        return now - self.last_progress >= self.settings.interval_seconds

    def answered(self, answer: ProbeAnswer, asked: float, now: float) -> bool:
        """Take in an answer to a question asked at `asked`; whether the engine hangs."""
        if answer is ProbeAnswer.GENERATED:
            self.armed = True
            self.progress(now)
        elif answer is ProbeAnswer.BUSY or self.last_progress >= asked or not self.armed:
            self.failures = 0  # it worked on others' requests in the meantime
        elif answer is ProbeAnswer.UNFIT:
            self.armed = False
        else:
            self.failures += 1
            how = (
                f"no token within {self.settings.timeout_seconds:g} s"
                if answer is ProbeAnswer.SILENT
                else "an error instead of a token"
            )
            self.reason = (
                f"it no longer generates: {how}, {self.failures} times in a row, and no batch in "
                "its log meanwhile (launch.watchdog)"
            )
        return self.failures >= self.settings.failures


@dataclass
class Watchdog:
    """The thread that watches one engine. `hung` holds the reason once it hangs."""

    settings: Settings
    probe: Probe
    stopped: Callable[[], str | None] = lambda: None
    """A process of the engine that is stopped (SIGSTOP), whose log may not be trusted then."""
    armed: bool = False
    clock: Callable[[], float] = time.monotonic
    hung: str | None = None
    asked: int = 0
    _progress: float | None = None
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: LaunchThread | None = None

    def start(self) -> None:
        """Begin to watch."""
        self._thread = LaunchThread("the watchdog", self._run)
        self._thread.start()

    @property
    def failure(self) -> str | None:
        """The reason for an early end of the thread; None without one."""
        return None if self._thread is None else self._thread.failure

    def stop(self) -> None:
        """Watch no more."""
        self._ended.set()

    def output(self, lines: Sequence[str]) -> None:
        """The engine printed these lines. Called by another thread."""
        if any(BATCH.search(line) for line in lines):
            self._progress = self.clock()

    def _run(self) -> None:
        judge = Judge(self.settings, self.armed, self.clock())
        before = self.probe.counters()
        pause = self.settings.interval_seconds / 2  # finding a stopped process reads all of /proc
        while not self._ended.wait(pause):
            halted = self.stopped()
            if halted is None:
                self._note_progress(judge)
            if not judge.due(self.clock()):
                continue
            counters = self.probe.counters()
            if counters is not None and counters != before and halted is None:
                before = counters
                judge.progress(self.clock())
                continue
            before = counters
            asked = self.clock()
            self.asked += 1
            answer = self.probe.generate(self.settings.timeout_seconds)
            if self.stopped() is None:
                self._note_progress(judge)
            if judge.answered(answer, asked, self.clock()):
                self.hung = f"{judge.reason}; {halted} is stopped" if halted else judge.reason
                return

    def _note_progress(self, judge: Judge) -> None:
        if self._progress is not None and self._progress > judge.last_progress:
            judge.progress(self._progress)
