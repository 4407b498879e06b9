"""The phases of an engine's start, read off its log lines.

Wordings differ between versions; sources are the log statements of the released wheels
(0.4.6.post5 to 0.5.23): managers/scheduler.py, model_executor/model_runner.py,
mem_cache/memory_pool.py, speculative/eagle_worker*.py, entrypoints/http_server.py. At
`--log-level warning` the engine prints none of them; readiness is therefore never read off the
log but asked over HTTP.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

from speclaunch.launch.bars import Bar, read_bar


class Phase(StrEnum):
    """What the engine is doing. The value is what the user sees."""

    IMPORTS = "import SGLang"
    SCHEDULER = "start scheduler"
    WEIGHTS = "load target weights"
    DRAFT_WEIGHTS = "load draft weights"
    KV_POOL = "allocate KV cache"
    GRAPHS = "capture CUDA graphs"
    WARM_UP = "warm up"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Step:
    """A phase that began `started` seconds after the engine was spawned."""

    phase: Phase
    started: float
    ended: float | None = None
    detail: str = ""


_HEADER = re.compile(
    # SGLANG_LOG_MS adds milliseconds; the longest name of a rank is ATTN_CP
    r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?(?P<ranks>(?: [A-Z_]{2,8}\d+)*)\] (?P<text>.*)$"
)
_WEIGHTS_BEGIN = re.compile(r"Load weight begin\.")
_WEIGHTS_END = re.compile(
    r"Load weight end\..*?type=(?P<type>\w+)(?:.*?mem usage=(?P<gb>-?[\d.]+) GB)?"
)
_KV = re.compile(r"[\w /-]*(?:is allocated|VA upper bound)\..*?#tokens: (?P<tokens>\d+)")
_CAPTURE = re.compile(r"Capture .*cuda graph.*begin", re.IGNORECASE)
_SUMMARY = re.compile(
    r"max_total_num_tokens=(?P<tokens>\d+).*?max_running_requests=(?P<requests>\d+)"
)
_SERVING = re.compile(
    r"INFO: +(Started server process|Application startup complete|Uvicorn running on)"
)
_PORT_TAKEN = re.compile(r"\[Errno 98\].*address already in use", re.IGNORECASE)


@dataclass(slots=True)
class PhaseTracker:
    """Feed it the engine's output line by line; `steps` is what has happened so far."""

    steps: list[Step] = field(default_factory=lambda: [Step(Phase.IMPORTS, 0.0)])
    max_total_tokens: int | None = None
    max_running_requests: int | None = None
    port_taken: bool = False
    """The engine could not bind its port. It does not end by itself then (seen on 0.5.23)."""
    bar: Bar | None = None
    """How far the current phase is, where the engine draws that."""
    last_output: float = 0.0
    """When the engine last printed something, in seconds after the spawn."""
    _weights: int = 0

    @property
    def current(self) -> Step:
        """The phase that the engine is in."""
        return self.steps[-1]

    def feed(self, line: str, now: float) -> bool:
        """Take in a line that appeared `now` seconds after the spawn; whether it meant anything."""
        self.last_output = now
        self.bar = read_bar(line, now) or self.bar
        if _PORT_TAKEN.search(line):
            self.port_taken = True
            return True
        header = _HEADER.match(line)
        if header is not None and re.search(r"[1-9]", header["ranks"]):
            return False  # of another rank than the first
        text = header["text"] if header is not None else line
        if text.startswith("server_args="):
            self.enter(Phase.SCHEDULER, now)
        elif _WEIGHTS_BEGIN.match(text):
            self._weights += 1
            self.enter(Phase.WEIGHTS if self._weights == 1 else Phase.DRAFT_WEIGHTS, now)
        elif match := _WEIGHTS_END.match(text):
            last = self.steps[-1]
            self.steps[-1] = Step(last.phase, last.started, now, _weights_detail(match))
        elif match := _KV.match(text):
            self.enter(Phase.KV_POOL, self.current.ended or now)
            self._describe(f"{int(match['tokens']):,} tokens")
        elif _CAPTURE.match(text):
            self.enter(Phase.GRAPHS, now)
        elif match := _SUMMARY.match(text):
            self.max_total_tokens = int(match["tokens"])
            self.max_running_requests = int(match["requests"])
        elif _SERVING.match(text):
            self.enter(Phase.WARM_UP, now)
        else:
            return False
        return True

    def glance(self, unfinished: str, now: float) -> None:
        """Look at a line that is not finished: a bar is drawn over before it ends."""
        bar = read_bar(unfinished, now)
        if bar is not None and (self.bar is None or _drawn(bar) != _drawn(self.bar)):
            self.bar, self.last_output = bar, now

    def enter(self, phase: Phase, now: float) -> None:
        """Begin a phase, ending the one before; does nothing when it is in it already."""
        last = self.steps[-1]
        if last.phase is not phase:
            if last.ended is None:
                self.steps[-1] = Step(last.phase, last.started, now, last.detail)
            self.steps.append(Step(phase, now))
            self.bar = None

    def _describe(self, detail: str) -> None:
        last = self.steps[-1]
        self.steps[-1] = Step(last.phase, last.started, last.ended, detail)


def _drawn(bar: Bar) -> tuple[str, str, str]:
    return bar.what, bar.done, bar.total


def _weights_detail(match: re.Match[str]) -> str:
    size = match["gb"]
    return match["type"] + (f", {float(size):.2f} GB" if size and float(size) > 0 else "")
