"""When a drop of the acceptance length is reported, and when it is not."""

from __future__ import annotations

import math

import pytest

from speclaunch.serving.metrics import (
    LEARNED_STEPS,
    LEAST_OBSERVATIONS,
    LEAST_STEPS,
    AcceptanceChange,
    AcceptanceSample,
    AcceptanceTest,
    learned,
)
from tests.support.loops import rows
from tests.support.serving.traffic import STEPS, Traffic

ONE_KIND = ((0.85, 0.0, 1.0),)


def sample(length: float, steps: float = 40) -> AcceptanceSample:
    return AcceptanceSample(length, steps)


def trained(length: float = 3.0, count: int = 60) -> AcceptanceTest:
    test = AcceptanceTest()
    for number in range(count):
        assert test.add(sample(length + (number % 5 - 2) / 20)) is None
    assert test.baseline is not None
    return test


def steps_until_change(test: AcceptanceTest, length: float, steps: float = 40) -> float:
    for number in range(1, 1_000):
        if test.add(sample(length, steps)) is not None:
            return number * steps
    raise AssertionError("no change")


@pytest.mark.parametrize("length", [2.4, 1.5, 1.0])
def test_a_drop_is_reported_once_after_enough_steps(length: float) -> None:
    test = trained()
    assert LEAST_STEPS <= steps_until_change(test, length) <= 200
    assert test.is_low
    assert not any(test.add(sample(length)) for _ in range(500))


def test_the_report_states_both_lengths_and_the_steps() -> None:
    test = trained()
    change = next(found for _ in range(99) if (found := test.add(sample(2.0))))
    assert change == AcceptanceChange(True, pytest.approx(3.0, abs=0.01), 2.0, 120)
    assert str(change).startswith("acceptance length dropped: 2.00 over 120 verification steps")


def test_the_return_is_reported_too() -> None:
    test = trained()
    steps_until_change(test, 1.5)
    assert 0 < steps_until_change(test, 3.0) <= 200
    assert not test.is_low


@pytest.mark.parametrize("steps", [1, 10])
def test_few_steps_are_never_a_drop(steps: int) -> None:
    test = trained()
    most = math.ceil(LEAST_STEPS / steps)
    assert not any(test.add(sample(1.0, steps)) for _ in range(most - 1))
    test = trained()
    assert not any(test.add(sample(1.0, 10_000)) for _ in range(LEAST_OBSERVATIONS - 1))


def test_a_small_loss_is_none() -> None:
    test = trained()
    assert not any(test.add(sample(2.9)) for _ in range(2_000))


def test_nothing_is_learned_from_few_steps_or_without_acceptance() -> None:
    assert learned([sample(3.0, 1)] * 100) is None
    assert learned([sample(3.0, LEARNED_STEPS)] * 3) is None
    assert learned([sample(1.0)] * 100) is None


def test_a_constant_length_can_drop() -> None:
    test = AcceptanceTest()
    for _ in range(40):
        test.add(sample(4.0))
    assert steps_until_change(test, 3.0) <= 200


@rows("length", [math.nan, math.inf, 0.0, -1.0])
def test_values_that_are_no_lengths_are_ignored(length: float) -> None:
    test = trained()
    assert not any(test.add(sample(length)) for _ in range(100))


def test_a_slow_decay_is_reported() -> None:
    test = trained()
    lengths = (3.0 - number / 500 for number in range(1_000))
    assert any(test.add(sample(length)) for length in lengths)


def test_a_restart_forgets_the_evidence_only() -> None:
    test = trained()
    for _ in range(100):
        test.add(sample(1.0))
        test.add(sample(1.0))
        test.restart()
    assert not test.is_low and test.baseline is not None


@pytest.mark.parametrize("wrong", [0.2, 0.5, 0.95])
@pytest.mark.parametrize("load", [1, 8])
def test_wrong_tokens_are_reported_within_200_steps(wrong: float, load: int) -> None:
    traffic, test = Traffic(7, ONE_KIND), AcceptanceTest()
    for _ in range(60):
        assert test.add(traffic.sample(load)) is None
    traffic.wrong = wrong
    assert any(test.add(traffic.sample(load)) for _ in range(200 // STEPS))


@pytest.mark.thorough
def test_a_short_day_of_traffic_has_no_false_alarm() -> None:
    assert_quiet(3, per_hour=40)


@pytest.mark.slow
@pytest.mark.thorough
def test_a_day_of_traffic_has_no_false_alarm() -> None:
    assert_quiet(11, per_hour=600)


def assert_quiet(seed: int, per_hour: int) -> None:
    test = AcceptanceTest()
    for found in Traffic(seed).day(per_hour):
        if found is None:
            test.restart()
            continue
        assert test.add(found) is None
    assert test.baseline is not None
