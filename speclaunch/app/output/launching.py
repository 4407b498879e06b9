"""A start as it happens, in plain lines; on a terminal it is a live table (`live_start.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from speclaunch.app.output.styled import Printer
from speclaunch.core import EVERY_SECONDS, Heartbeat, amount, duration, without_colors
from speclaunch.serving import Phase, PhaseTracker, Rung, Verification

_SILENT_SECONDS = 30.0
"""From when on it is told that the engine prints nothing."""


class WeightSizes(Struct, frozen=True):
    """Bytes of the checkpoints (`weight_bytes`), where they are known."""

    target: int | None = None
    draft: int | None = None


def how_far(tracker: PhaseTracker, seconds: float, sizes: WeightSizes) -> str:
    """`[  45.0 s] load target weights: 12 of 47 shards, 4.1 of 16.1 GB, about 2 min left`."""
    step = tracker.current
    name = "check speculation" if step.phase is Phase.READY else step.phase.value
    head = f"[{seconds:6.1f} s] "
    if step.ended is not None:
        text = f"{name}: done {duration(seconds - step.ended)} ago, the next step has not started"
    else:
        how = counted(tracker, seconds, sizes) or f"for {duration(seconds - step.started)}"
        text = f"{name}: {how}"
    silent = seconds - tracker.last_output
    if silent >= _SILENT_SECONDS and step.phase is not Phase.READY:
        text += f"; the engine has printed nothing for {duration(silent)}"
    return head + text


def counted(tracker: PhaseTracker, seconds: float, sizes: WeightSizes) -> str:
    """What the engine's progress bar counts; empty where it draws none."""
    bar = tracker.bar
    if bar is None:
        return ""
    parts = [f"{bar.done} of {bar.total} {bar.what}"]
    whole = {Phase.WEIGHTS: sizes.target, Phase.DRAFT_WEIGHTS: sizes.draft}.get(
        tracker.current.phase
    )
    if bar.of_weights and whole:
        parts.append("about " + amount(int(bar.fraction * whole), whole, 0))
    left = bar.left - (seconds - bar.at) if bar.left is not None else 0
    if left >= 1:
        parts.append(f"{duration(left)} left")
    return ", ".join(parts)


OnReady = Callable[[Verification | None, float], None]


class PlainObserver:
    """One line for each phase, for logs and pipes, and one whenever a start was silent."""

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
        """The log of the engine that was started last."""

    def say(self, text: str, style: str | None = None) -> None:
        """Say it, whatever brackets it has."""
        self._heartbeat.spoke()
        self._console.print(text, style=style, markup=False)

    def spawned(self, pid: int | None, log: Path) -> None:
        """Name the process and its log."""
        self.log = log
        self._starting = True
        self.say(f"engine started (process {pid}), log: {log}")

    def progress(self, tracker: PhaseTracker, seconds: float) -> None:
        """Print each phase once, when it begins; how far it is when it takes long."""
        for step in tracker.steps[self._shown :]:
            self.say(f"[{step.started:6.1f} s] {step.phase.value}")
        self._shown = len(tracker.steps)
        if self._starting:
            self._now = (tracker, seconds)
            self._heartbeat.beat()

    def _how_far(self) -> str:
        return how_far(*self._now, self._weights) if self._now is not None else ""

    def output(self, lines: Sequence[str]) -> None:
        """Pass the engine's output through when asked to."""
        if self._verbose:
            for line in lines:
                self._console.print(without_colors(line), markup=False)

    def ready(self, verification: Verification | None, seconds: float) -> None:
        """Hand over to the report."""
        self._starting = False
        self._on_ready(verification, seconds)

    def warn(self, text: str) -> None:
        """Say it in a line of its own."""
        self.say(f"warning: {text}", "yellow")

    def stopping(self, why: str) -> None:
        """Say so."""
        self.say(f"stopping the engine{f': {why}' if why else ''}")

    def attempt(self, number: int, changes: Mapping[str, Any], rung: Rung | None) -> None:  # noqa: ARG002
        """Say what is tried next, why, and what it costs. The first attempt needs no words."""
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
        """Say why there will be another attempt."""
        self.say(f"the engine ended: {why}", "yellow")

    def waiting(self, seconds: float) -> None:
        """Say how long the pause is."""
        self.say(f"starting it again in {seconds:g} s")

    def close(self) -> None:
        """There is nothing to give back."""

    def note(self, text: str) -> None:
        """Say it in a line of its own."""
        self.say(f"note: {text}")
