"""The phases of a start, as a launch shows them: when each began, and how far it is."""

from __future__ import annotations

import re
from dataclasses import field

from speclaunch.launch.log.bars import ProgressBar, read_bar
from speclaunch.launch.log.lines import LogLine, read
from speclaunch.launch.log.marks import PORT_TAKEN, LogMark, Phase, mark_of
from speclaunch.record import record


@record
class PhaseStep:
    """A phase that began `started` seconds after the engine was spawned."""

    phase: Phase
    started: float
    ended: float | None = None
    detail: str = ""


_PORT_TAKEN = re.compile(PORT_TAKEN)


@record(frozen=False)
class PhaseTracker:
    """Feed it the engine's output line by line; `steps` is what has happened so far."""

    steps: list[PhaseStep] = field(default_factory=lambda: [PhaseStep(Phase.IMPORTS, 0.0)])
    max_total_tokens: int | None = None
    max_running_requests: int | None = None
    port_taken: bool = False
    """The engine could not bind its port. It does not end by itself then (seen on 0.5.23)."""
    bar: ProgressBar | None = None
    """How far the current phase is, where the engine draws that."""
    last_output: float = 0.0
    """When the engine last printed something, in seconds after the spawn."""
    _weights: int = 0

    @property
    def current(self) -> PhaseStep:
        """The phase that the engine is in."""
        return self.steps[-1]

    def feed(self, line: str, now: float) -> bool:
        """Take in a line that appeared `now` seconds after the spawn; whether it meant anything."""
        self.last_output = now
        self.bar = read_bar(line, now) or self.bar
        if _PORT_TAKEN.search(line):
            self.port_taken = True
            return True
        marks = [self._take(one, now) for one in read([line])]
        return any(marks)

    def _take(self, line: LogLine, now: float) -> bool:
        if re.search(r"[1-9]", line.rank):
            return False  # of another rank than the first
        match mark_of(line.text):
            case LogMark.ARGUMENTS, _:
                self.enter(Phase.SCHEDULER, now)
            case LogMark.LOAD_BEGIN, _:
                self._weights += 1
                self.enter(Phase.WEIGHTS if self._weights == 1 else Phase.DRAFT_WEIGHTS, now)
            case LogMark.LOAD_END, found:
                last = self.steps[-1]
                self.steps[-1] = PhaseStep(last.phase, last.started, now, _weights_detail(found))
            case LogMark.POOL, found:
                self.enter(Phase.KV_POOL, self.current.ended or now)
                self._describe(f"{int(found['tokens']):,} tokens")
            case LogMark.CAPTURE_BEGIN, _:
                self.enter(Phase.GRAPHS, now)
            case LogMark.SUMMARY, found:
                self.max_total_tokens = int(found["tokens"])
                self.max_running_requests = int(found["requests"])
            case LogMark.SERVING, _:
                self.enter(Phase.WARM_UP, now)
            case _:
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
                self.steps[-1] = PhaseStep(last.phase, last.started, now, last.detail)
            self.steps.append(PhaseStep(phase, now))
            self.bar = None

    def _describe(self, detail: str) -> None:
        last = self.steps[-1]
        self.steps[-1] = PhaseStep(last.phase, last.started, last.ended, detail)


def _drawn(bar: ProgressBar) -> tuple[str, str, str]:
    return bar.what, bar.done, bar.total


def _weights_detail(match: re.Match[str]) -> str:
    size = match["used_gb"]
    return match["type"] + (f", {float(size):.2f} GB" if size and float(size) > 0 else "")
