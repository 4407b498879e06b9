"""Watch a serving engine outside its hot path: detect hangs, and read acceptance from its log.

`/health` is no proof: it answers 200 while generation hangs, because its handler only queries the
HTTP process. The watchdog therefore requests one token from a separate thread. It does so only if
the engine shows no progress: no batch in its log and no change in its counters. A busy engine that
answers slowly is not disturbed.

Reading the log costs the engine nothing and needs no `--enable-metrics`. Without decode steps in
the log (`--log-level warning`), speculation statistics are unknown.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from msgspec import Struct, field

from speclaunch.core import children
from speclaunch.engine import Address
from speclaunch.serving.launch.client import EngineClient, EngineError, EngineSilentError
from speclaunch.serving.launch.engine_log import BATCH
from speclaunch.serving.metrics import (
    INTERVAL,
    USUAL_INTERVAL,
    AcceptanceChange,
    AcceptanceSample,
    AcceptanceTest,
    RankMetrics,
    decode_batch,
    progress,
)

if TYPE_CHECKING:
    from speclaunch.deployments import WatchdogSection as Settings
    from speclaunch.engine import RenderedArgs


_SHOWN = 300


class LaunchThread:
    """Thread that stores its error in `failure` and prints no traceback."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        """`name`: the thread's role in the launch, for failure messages (`the prober`)."""
        self.failure: str | None = None
        """Reason for an early end; None while the thread runs, and after a normal end."""
        self._name, self._work = name, work
        self._thread = threading.Thread(target=self._run, name=f"speclaunch {name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            text = " ".join(f"{type(error).__name__}: {error}".split())[:_SHOWN]
            where = f"{Path(place.filename).name}:{place.lineno}"
            self.failure = f"{self._name} failed, a bug in speclaunch: {text} ({where})"


class ProbeAnswer(StrEnum):
    """Result of a request for one token."""

    GENERATED = "generated"
    BUSY = "busy"
    """The engine cannot accept a request now (429, or 503 for a full queue)."""
    UNFIT = "unfit"
    """The engine never accepts one-token requests, so the answer proves nothing."""
    FAILED = "failed"
    SILENT = "silent"


class HangDetector(Struct):
    """Detector of hangs, independent of the engine and the clock."""

    settings: Settings
    armed: bool = False
    """True once the engine has generated a token; before that, a missing answer proves nothing."""
    last_progress: float = 0.0
    failures: int = 0
    reason: str = ""

    def progress(self, now: float) -> None:
        self.last_progress = now
        self.failures = 0

    def due(self, now: float) -> bool:
        """True if the engine has made no progress for a probe interval."""
        return now - self.last_progress >= self.settings.interval_seconds

    def answered(self, answer: ProbeAnswer, sent: float, now: float) -> bool:
        """Record the answer to a probe sent at `sent`; return True if the engine hangs."""
        if answer is ProbeAnswer.GENERATED:
            self.armed = True
            self.progress(now)
        elif answer is ProbeAnswer.BUSY or self.last_progress >= sent or not self.armed:
            self.failures = 0  # it worked on other requests in the meantime
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


class Watchdog(Struct):
    """Thread that watches one engine. `hung`: description of the hang; None until it hangs."""

    settings: Settings
    probe: EngineProbe
    stopped: Callable[[], str | None] = lambda: None
    """Function that describes an engine process stopped by SIGSTOP; None if none is stopped. The
    log of a stopped engine proves nothing."""
    armed: bool = False
    clock: Callable[[], float] = time.monotonic
    hung: str | None = None
    probes_sent: int = 0
    _progress: float | None = None
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: LaunchThread | None = None

    def start(self) -> None:
        self._thread = LaunchThread("the watchdog", self._run)
        self._thread.start()

    @property
    def failure(self) -> str | None:
        return None if self._thread is None else self._thread.failure

    def stop(self) -> None:
        self._ended.set()

    def output(self, lines: Sequence[str]) -> None:
        """Record progress if a line reports a batch. Called from another thread."""
        if any(BATCH.search(line) for line in lines):
            self._progress = self.clock()

    def _run(self) -> None:
        detector = HangDetector(self.settings, self.armed, self.clock())
        before = self.probe.counters()
        pause = self.settings.interval_seconds / 2  # finding a stopped process reads all of /proc
        while not self._ended.wait(pause):
            halted = self.stopped()
            if halted is None:
                self._note_progress(detector)
            if not detector.due(self.clock()):
                continue
            counters = self.probe.counters()
            if counters is not None and counters != before and halted is None:
                before = counters
                detector.progress(self.clock())
                continue
            before = counters
            sent = self.clock()
            self.probes_sent += 1
            answer = self.probe.generate(self.settings.timeout_seconds)
            if self.stopped() is None:
                self._note_progress(detector)
            if detector.answered(answer, sent, self.clock()):
                self.hung = f"{detector.reason}; {halted} is stopped" if halted else detector.reason
                return

    def _note_progress(self, detector: HangDetector) -> None:
        if self._progress is not None and self._progress > detector.last_progress:
            detector.progress(self._progress)


_PROMPT = [10, 11, 12, 13]
_OK, _TOO_MANY, _UNAVAILABLE, _SERVER_ERROR = 200, 429, 503, 500


class EngineProbe:
    """Probe of one engine over HTTP. No method raises network errors."""

    def __init__(self, address: Address) -> None:
        self._client = EngineClient(address)
        self._paths = ["/metrics", "/v1/loads", "/get_load"]

    def generate(self, timeout: float) -> ProbeAnswer:
        """Return the answer to a request for one token. The prompt consists of token ids, which an
        engine without a tokenizer also accepts."""
        body = {"input_ids": _PROMPT, "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
        try:
            answer = self._client.post("/generate", body, timeout)
        except EngineSilentError:
            return ProbeAnswer.SILENT
        except EngineError:
            return ProbeAnswer.FAILED
        if answer.status_code == _OK:
            return ProbeAnswer.GENERATED
        if answer.status_code in (_TOO_MANY, _UNAVAILABLE):
            return ProbeAnswer.BUSY
        return ProbeAnswer.FAILED if answer.status_code >= _SERVER_ERROR else ProbeAnswer.UNFIT

    def counters(self) -> object:
        """Return the engine's own token counts; None if its version or settings provide none."""
        return progress(self._client, self._paths)


def stopped_process(pid: int | None) -> str | None:
    """Describe a stopped process (SIGSTOP) of the engine; return None if no process is stopped."""
    if pid is None:
        return None
    try:
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            if process.status() == psutil.STATUS_STOPPED:
                return f"its process {process.pid} ({_title(process)})"
    except psutil.Error:
        return None
    return None


def _title(process: psutil.Process) -> str:
    try:
        argv = process.cmdline()
    except psutil.Error:
        argv = []
    return argv[0] if argv and argv[0].startswith("sglang::") else process.name()


_POINTS = 120
_FIRST_SECONDS = 5.0
_MOST_RANKS = 64
_MOST_REQUESTS = 1 << 20
_ADAPTIVE = "speculative_adaptive"
HOOK_SECONDS = 30.0
_INHERITED = ("PATH", "HOME", "LANG", "TZ")
"""Environment variables passed to a hook. None contains a secret."""


class Course(Struct):
    """Mean acceptance length and token rate over equal periods since the engine became ready. Once
    the maximum number of periods is reached, their length doubles."""

    seconds: float = _FIRST_SECONDS
    _points: list[tuple[float, float, float, int]] = field(default_factory=list)
    """Sums per period: length times steps, steps, tokens per second, number of lines."""

    def add(self, at: float, batch: RankMetrics, steps: float) -> None:
        """Add the values of a log line, read `at` seconds after the engine was ready."""
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
        """Return the values per period for the journal; None for a period without decode steps."""
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
    """Monitor of acceptance across engine starts; starts with equal settings share a baseline."""

    _tests: dict[str, AcceptanceTest] = field(default_factory=dict)
    _course: Course = field(default_factory=Course)
    _before: dict[str, float] = field(default_factory=dict)
    _settings: object = None
    _interval: int = USUAL_INTERVAL
    _is_tested: bool = True

    def begin(self, rendered: RenderedArgs, settings: object) -> None:
        """Begin to monitor a new engine. Adaptive speculation is not tested, because it changes the
        draft length while serving."""
        if settings != self._settings:
            self._tests = {}
        for test in self._tests.values():
            test.restart()
        self._settings, self._course, self._before = settings, Course(), {}
        interval = rendered.value(INTERVAL) or ""
        self._interval = int(interval) if interval.isdecimal() else USUAL_INTERVAL
        self._is_tested = rendered.value(_ADAPTIVE) in (None, "false")

    def read(self, lines: Sequence[str], seconds: float) -> list[tuple[str, AcceptanceChange]]:
        """Return the changes in acceptance that these log lines show, each with its rank (empty if
        the engine has only one).

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
        """Return acceptance and speed over time, and the baseline of each rank, for the journal."""
        baselines = {
            rank: {"accept_length": round(test.baseline.length, 3), "steps": test.baseline.steps}
            for rank, test in self._tests.items()
            if test.baseline is not None
        }
        return {**self._course.document(), "baselines": baselines}


def run_hook(program: Path, facts: Mapping[str, object], log: Path) -> LaunchThread:
    """Start and return a thread that runs a user's program, with the facts as environment
    variables.

    The program receives no arguments, input or secrets, and is killed after `HOOK_SECONDS`. Its
    output is written to `log`.
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
