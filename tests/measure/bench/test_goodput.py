"""Requests within bounds, worked out by hand."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from speclaunch.core.errors import InputError
from speclaunch.measure.bench.measurement import Bound, bounds, good, goodput
from tests.support.loops import rows
from tests.support.measure.bench.making import a_round, request

FAST = request(latency=0.4, first_token=0.1, tokens=31)  # a TPOT of 10 ms
SLOW = request(latency=1.0, first_token=0.1, tokens=31)  # a TPOT of 30 ms
ONE = request(latency=0.3, first_token=0.3, tokens=1)
FAILED = request(ok=False, latency=0.0, first_token=0.0, tokens=None)
ROUND = replace(a_round(seconds=2.0), requests=(FAST, SLOW, ONE, FAILED))


@rows(
    "text, number",
    [
        ("ttft=100", 2),
        ("ttft=99.9", 0),
        ("tpot=10.001", 2),  # a single token has none, and meets every bound of it
        ("tpot=30.001", 3),
        ("e2el=400", 2),
        ("e2e=1000", 3),
        ("ttft:300 tpot:20", 2),
        ("ttft=200,tpot=20", 1),
    ],
)
def test_requests_within_all_bounds_are_counted(text: str, number: int) -> None:
    within = bounds(text)
    assert good(ROUND, within) == number
    assert goodput(ROUND, within) == number / 2.0


def test_bounds_go_by_the_generators_names() -> None:
    assert bounds("e2e=4000, ttft:500") == (Bound("e2el", 4000.0), Bound("ttft", 500.0))


@rows(
    "text",
    [
        *("", ",", "ttft", "ttft=", "ttft=x", "ttft=0", "ttft=-5", "tpot=inf", "tpot=nan"),
        *("latency=5", "ttft=5,ttft=6", "e2e=5,e2el=6"),
    ],
)
def test_what_is_no_bound_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="goodput"):
        bounds(text)
