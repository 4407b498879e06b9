"""Progress of a start in plain lines; `live_start.py` shows a live table on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from speclaunch.app.output.console import Printer
from speclaunch.core import EVERY_SECONDS, Heartbeat, amount, duration, without_colors
from speclaunch.serving import Phase, PhaseTracker, Rung, Verification

_SILENT_SECONDS = 30.0
"""Seconds without engine output after which the silence is reported."""


class WeightSizes(Struct, frozen=True):
    """Weight sizes of target and draft in bytes; None if unknown."""

    target: int | None = None
    draft: int | None = None


def how_far(tracker: PhaseTracker, seconds: float, sizes: WeightSizes) -> str:
    """Return the progress of a start as text.

    Example: `[  45.0 s] load target weights: 12 of 47 shards, 4.1 of 16.1 GB, about 2 min left`
    """
    step = tracker.current
    name = "check speculation" if step.phase is Phase.READY else step.phase.value
    head = f"[{seconds:6.1f} s] "
    if step.ended is not None:
        text = f"{name}: done {duration(seconds - step.ended)} ago; the next step has not started"
    else:
        how = counted(tracker, seconds, sizes) or f"for {duration(seconds - step.started)}"
        text = f"{name}: {how}"
    silent = seconds - tracker.last_output
    if silent >= _SILENT_SECONDS and step.phase is not Phase.READY:
        text += f"; no engine output for {duration(silent)}"
    return head + text


def counted(tracker: PhaseTracker, seconds: float, sizes: WeightSizes) -> str:
    """Return the count of the engine's progress bar as text; empty without a progress bar."""
    bar = tracker.bar
    if bar is None:
        return ""
    parts = [f"{bar.done} of {bar.total} {bar.what}"]
    total = {Phase.WEIGHTS: sizes.target, Phase.DRAFT_WEIGHTS: sizes.draft}.get(
        tracker.current.phase
    )
    if bar.of_weights and total:
        parts.append("about " + amount(int(bar.fraction * total), total, 0))
    left = bar.left - (seconds - bar.at) if bar.left is not None else 0
    if left >= 1:
        parts.append(f"{duration(left)} left")
    return ", ".join(parts)


OnReady = Callable[[Verification | None, float], None]


class PlainObserver:
    """Observer for logs and pipes: prints each phase, and progress after `every` quiet seconds."""

    def __init__(
        self,
        console: Printer,
        on_ready: OnReady,
        *,
        verbose: bool = False,
        weights: WeightSizes | None = None,
        every: float = EVERY_SECONDS,
    ) -> None:
        self._console = console
        self._on_ready = on_ready
        self._verbose = verbose
        self._weights = weights or WeightSizes()
        self._shown = 0
        self._starting = False
        self._now: tuple[PhaseTracker, float] | None = None
        self._heartbeat = Heartbeat(self.say, lambda _: self._how_far(), every=every)
        self.log: Path | None = None
        """Log file of the last engine started; None before the first start."""

    def say(self, text: str, style: str | None = None) -> None:
        """Print the text literally; markup in it has no effect."""
        self._heartbeat.note_output()
        self._console.print(text, style=style)

    def spawned(self, pid: int | None, log: Path) -> None:
        self.log = log
        self._starting = True
        self.say(f"engine started (process {pid}), log: {log}")

    def progress(self, tracker: PhaseTracker, seconds: float) -> None:
        """Print each phase when it begins, and the progress of long phases."""
        for step in tracker.steps[self._shown :]:
            self.say(f"[{step.started:6.1f} s] {step.phase.value}")
        self._shown = len(tracker.steps)
        if self._starting:
            self._now = (tracker, seconds)
            self._heartbeat.beat()

    def _how_far(self) -> str:
        return how_far(*self._now, self._weights) if self._now is not None else ""

    def output(self, lines: Sequence[str]) -> None:
        if self._verbose:
            for line in lines:
                self._console.print(without_colors(line))

    def ready(self, verification: Verification | None, seconds: float) -> None:
        self._starting = False
        self._on_ready(verification, seconds)

    def warn(self, text: str) -> None:
        self.say(f"warning: {text}", "yellow")

    def stopping(self, why: str) -> None:
        self.say(f"stopping the engine{f': {why}' if why else ''}")

    def attempt(self, number: int, changes: Mapping[str, Any], rung: Rung | None) -> None:  # noqa: ARG002
        """Print the changes, reason and cost of an attempt; nothing for the first attempt."""
        self._shown = 0
        if number == 1:
            return
        self.say(f"attempt {number}", "bold")
        if rung is None:
            return
        for label, text in (
            ("change", " ".join(f"{name}={value}" for name, value in rung.changes.items())),
            ("why", rung.why),
            ("cost", rung.cost),
        ):
            if text:
                self.say(f"  {label:<6} {text}")

    def failed(self, why: str) -> None:
        self.say(f"the engine ended: {why}", "yellow")

    def waiting(self, seconds: float) -> None:
        self.say(f"restarting in {seconds:g} s")

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def note(self, text: str) -> None:
        self.say(f"note: {text}")
