"""Values now and over five minutes, from gauges that stand still and counters that fall."""

from __future__ import annotations

import pytest

from speclaunch.measure.watch_history import SPAN_SECONDS, EngineHistory
from speclaunch.serving.metrics import EngineMetrics, RankMetrics


def reading(
    rank: str = "", finished: float | None = None, requests: float = 0, **values: float
) -> EngineMetrics:
    return EngineMetrics(
        ranks=(RankMetrics(rank=rank, **{"running": 1, **values}),),
        generated=finished,
        verifications=None if finished is None else finished / 2,
        requests=requests,
    )


def test_counters_are_rates_over_the_history() -> None:
    history = EngineHistory()
    for second in range(0, 11, 2):
        decoded, passes = 100 * second, 40 * second
        history.add(
            second,
            reading(
                decoded=decoded, graph_passes=passes, other_passes=passes / 4, accept_length=2.5
            ),
        )
    total = history.total()
    assert total is not None
    assert (total.tokens_per_second, total.graph_share, total.decode_steps) == (100, 0.8, 500)
    assert (total.accept_length, total.accept_length_5m) == (2.5, 2.5)


def test_a_gauge_of_an_idle_engine_is_no_present_value() -> None:
    history = EngineHistory()
    history.add(0, reading(decoded=0, accept_length=2.0))
    history.add(2, reading(decoded=900, accept_length=2.5))
    for second in range(4, 60, 2):
        history.add(second, reading(decoded=900, accept_length=2.5, tokens_per_second=99))
    total = history.total()
    assert total is not None
    assert (total.accept_length, total.accept_length_5m) == (None, 2.5)
    assert total.tokens_per_second == 0


def test_releases_without_counters_move_by_their_gauges() -> None:
    history = EngineHistory()
    for second, length in enumerate((2.0, 2.0, 3.0, 3.0, 2.0)):
        history.add(second, reading(accept_length=length, tokens_per_second=50))
    total = history.total()
    assert total is not None
    assert (total.accept_length_5m, total.tokens_per_second) == (2.5, 50)
    assert total.graph_share is None


def test_a_counter_that_falls_is_a_restart_not_a_negative_rate() -> None:
    history = EngineHistory()
    for second, decoded in ((0, 1_000), (2, 2_000), (4, 10), (6, 210)):
        history.add(second, reading(finished=decoded, decoded=decoded))
    total = history.total()
    assert total is not None
    assert (history.restarts, total.tokens_per_second) == (1, 100)
    assert history.finished == (200, 100)


def test_old_readings_are_dropped() -> None:
    history = EngineHistory()
    for second in range(0, 1_000, 10):
        length = 4.0 if second < 500 else 2.0
        history.add(second, reading(finished=second, decoded=second, accept_length=length))
    total = history.total()
    assert total is not None
    assert total.accept_length_5m == 2.0
    assert history.finished == (SPAN_SECONDS, SPAN_SECONDS / 2)


def test_finished_requests_count_tokens_and_steps() -> None:
    history = EngineHistory()
    assert history.finished is None
    history.add(0, reading(finished=100))
    history.add(2, reading(finished=300, requests=50))
    assert history.finished == (150, 100)  # the first token of a request needs no verification


def test_running_requests_without_any_step_are_stuck() -> None:
    history = EngineHistory()
    for second in range(0, 70, 5):
        history.add(second, reading(decoded=7, accept_length=2.0))
    assert history.stuck_seconds == 65
    history.add(75, reading(decoded=8, accept_length=2.0))
    assert history.stuck_seconds == 0
    idle = EngineHistory()
    for second in range(0, 70, 5):
        idle.add(second, reading(decoded=7, running=0))
    assert idle.stuck_seconds == 0


@pytest.mark.parametrize("lifetime", [True, False])
def test_a_drop_is_found_in_the_gauges_not_in_means_of_a_lifetime(lifetime: bool) -> None:
    history, found = EngineHistory(), []
    for number in range(120):
        length = (3.0 if number < 60 else 1.5) + number % 3 / 20
        metrics = EngineMetrics(
            ranks=(RankMetrics(rank="0", running=2, decoded=400 * number, accept_length=length),),
            is_lifetime=lifetime,
        )
        found += history.add(2 * number, metrics)
    expected = [] if lifetime else [("0", True)]
    assert [(rank, change.is_drop) for rank, change in found] == expected
    assert history.is_low is not lifetime
