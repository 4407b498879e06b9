"""How far a start is, in a line: the phase, what the engine counts, how long still."""

from __future__ import annotations

from speclaunch.heartbeat import amount, duration
from speclaunch.launch.log.marks import Phase
from speclaunch.launch.log.phases import PhaseTracker
from speclaunch.record import record

_SILENT_SECONDS = 30.0
"""From when on it is told that the engine prints nothing."""


@record
class WeightSizes:
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
