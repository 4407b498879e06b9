"""Rounds as a good engine would have them, to be broken by the tests."""

from __future__ import annotations

from typing import Any

from speclaunch.measure.bench.measurement import MeasuredRequest, Round

GOOD = MeasuredRequest(
    ok=True,
    error="",
    latency=1.0,
    first_token=0.1,
    requested=32,
    tokens=32,
    prompt=20,
    cached=2,
    characters=100,
    verify_steps=10,
    positions=(2, 2, 2, 4),
)
PLAIN = {"verify_steps": 0, "positions": ()}


def request(**changes: Any) -> MeasuredRequest:
    return MeasuredRequest(**{**{name: getattr(GOOD, name) for name in GOOD.__slots__}, **changes})


def a_round(
    side: str = "R", number: int = 0, seconds: float = 2.0, requests: int = 4, **changes: Any
) -> Round:
    return Round(
        side, "chat", 2, number, seconds, tuple(request(**changes) for _ in range(requests))
    )
