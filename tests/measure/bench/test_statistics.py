"""Intervals: what Student's t says, and how often they hold the truth."""

from __future__ import annotations

import math
from random import Random

import pytest

from speclaunch.measure.bench.measurement import SpeedClaim, interval, of_starts, quantile
from tests.support.loops import rows


@rows(
    "freedom, bound",
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (9, 2.262), (30, 2.042)],
)
def test_quantiles_are_those_of_the_tables(freedom: int, bound: float) -> None:
    assert quantile(0.95, freedom) == pytest.approx(bound, abs=0.001)


def test_other_confidences_have_other_quantiles() -> None:
    assert quantile(0.99, 10) == pytest.approx(3.169, abs=0.001)
    assert quantile(0.90, 7) == pytest.approx(1.895, abs=0.001)


@pytest.mark.thorough
@pytest.mark.parametrize("pairs", [3, 5, 8])
def test_an_interval_holds_the_truth_as_often_as_it_says(pairs: int) -> None:
    random, truth, held = Random(pairs), 1.3, 0
    for _ in range(1000):
        base = [math.exp(random.gauss(5, 0.5)) for _ in range(pairs)]  # the machine wanders
        ours = [one * truth * math.exp(random.gauss(0, 0.05)) for one in base]
        found = interval(ours, base)
        held += found.low <= truth <= found.high
    assert 925 <= held <= 975


def test_the_same_against_itself_is_claimed_to_differ_at_the_rate_that_is_said() -> None:
    random, claimed = Random(1), 0
    for _ in range(400):
        ours, theirs = ([math.exp(random.gauss(5, 0.05)) for _ in range(6)] for _ in range(2))
        claimed += interval(ours, theirs).claim is not SpeedClaim.NOT_SHOWN
    assert claimed <= 32  # 20 are to be expected


@pytest.mark.thorough
@pytest.mark.parametrize("starts", [3, 5])
def test_starts_that_differ_are_claimed_to_differ_at_the_rate_that_is_said(starts: int) -> None:
    """Engines a few percent apart, whatever is measured when: no round tells of it."""
    random, claimed = Random(starts), {1: 0, starts: 0}
    for _ in range(400):
        for number in claimed:
            engines = [random.gauss(0, 0.05) for _ in range(number)]
            ours = [math.exp(engines[at % number] + random.gauss(5, 0.02)) for at in range(12)]
            theirs = [math.exp(random.gauss(5, 0.02)) for _ in range(12)]
            found = interval(ours, theirs, starts=number)
            claimed[number] += found.claim is not SpeedClaim.NOT_SHOWN
    assert claimed[starts] <= 32  # 20 are to be expected
    assert claimed[1] > 200


def test_a_start_counts_once() -> None:
    assert of_starts([1.0, 10.0, 3.0, 20.0, 5.0], 2) == [3.0, 15.0]
    assert of_starts([1.0, 2.0], 1) == [1.0, 2.0]
    found = interval([2.0, 4.0, 8.0] * 2, [1.0] * 6, starts=3)
    assert found.ratio == pytest.approx(4.0) and found.pairs == 6
    alone = interval([2.0, 4.0, 8.0], [1.0] * 3)
    assert (found.low, found.high) == pytest.approx((alone.low, alone.high))


def test_claims() -> None:
    assert interval([2.0, 2.1, 2.05], [1.0, 1.0, 1.0]).claim is SpeedClaim.PAYS
    assert interval([0.5, 0.52, 0.51], [1.0, 1.0, 1.0]).claim is SpeedClaim.DOES_NOT_PAY
    assert interval([1.1, 0.9, 1.0], [1.0, 1.0, 1.0]).claim is SpeedClaim.NOT_SHOWN


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [([1.0, 2.0], [1.0, 2.0]), ([1.0, 2.0, 3.0], [1.0, 2.0]), ([1.0, 0.0, 1.0], [1.0] * 3)],
)
def test_what_cannot_be_compared_is_refused(ours: list[float], theirs: list[float]) -> None:
    with pytest.raises(ValueError, match="round"):
        interval(ours, theirs)
