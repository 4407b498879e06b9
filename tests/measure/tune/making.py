"""Trials and rounds for tests."""

from __future__ import annotations

from speclaunch.measure.bench.measurement import MeasuredRequest, Round
from speclaunch.measure.tune.model import DraftSetting, RequestPace, Trial

OWN, DEEP, TREE = DraftSetting(3, 1, 4), DraftSetting(5, 1, 6), DraftSetting(3, 4, 12)


def trial(
    setting: DraftSetting, step: float, length: float, load: int = 1, first: float = 0.1
) -> Trial:
    """64 tokens a request."""
    latency = first + 63 * step / length
    pace = RequestPace(first, latency, 64)
    return Trial(setting, step, length, (), load, load * length / step, load / latency, (pace,))


def a_round(side: str, number: int, speed: float, load: int = 1, first: float = 0.05) -> Round:
    """4 requests of 64 tokens, one after the other, at so many tokens a second."""
    seconds = 64 / speed
    one = MeasuredRequest(
        ok=True,
        error="",
        latency=seconds,
        first_token=first,
        requested=64,
        tokens=64,
        prompt=10,
        cached=0,
        characters=200,
        verify_steps=20,
        positions=(5, 5, 10),
    )
    return Round(side, "code", load, number, 4 * seconds, (one,) * 4)
