"""What certificates claim, over simulated measurements whose truth is known."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

import pytest

from speclaunch.measure.bench.certificate import certificate
from speclaunch.measure.bench.measurement import Round, SpeedClaim
from speclaunch.measure.bench.schema import CertificateDocument
from tests.support.measure.bench.making import PLAIN, a_round

ROUNDS = 6


def simulated(random: Random, truth: float, *, cells: int = 1) -> CertificateDocument:
    """Both sides on a machine that wanders, with a round in twenty that something disturbs."""

    def rounds() -> Iterator[Round]:
        for cell in range(cells):
            level = random.gauss(0, 0.3)
            for number in range(ROUNDS):
                level = 0.8 * level + random.gauss(0, 0.1)
                for side, factor, changes in (("ours", truth, {}), ("theirs", 1.0, PLAIN)):
                    noise = random.gauss(0, 0.04) + (random.random() < 0.05) * random.uniform(
                        0, 0.5
                    )
                    seconds = math.exp(level + noise) / factor
                    one = a_round(side, number, seconds, **{**changes, "latency": seconds})
                    yield Round(side, "chat", cell + 1, number, seconds, one.requests)

    return certificate("ours", "theirs", list(rounds()), ())


@pytest.mark.thorough
def test_two_hundred_known_factors_are_in_the_intervals() -> None:
    held = {"speed_up": 0, "latency_ratio": 0}
    for seed in range(200):
        random = Random(seed)
        truth = random.uniform(0.6, 3.0)
        (cell,) = simulated(random, truth).cells
        for name in held:
            interval = getattr(cell, name)
            held[name] += interval.low <= truth <= interval.high
    assert min(held.values()) >= 180, held


@pytest.mark.thorough
@pytest.mark.parametrize("cells", [1, 4])
def test_a_deployment_against_itself_is_seldom_claimed_to_differ(cells: int) -> None:
    """All cells of a certificate together keep the error rate that is stated."""
    wrong = 0
    for seed in range(200):
        found = simulated(Random(seed), 1.0, cells=cells)
        wrong += any(cell.claim != SpeedClaim.NOT_SHOWN for cell in found.cells)
    assert wrong <= 20  # 10 are to be expected


@pytest.mark.thorough
def test_a_difference_that_is_there_is_found() -> None:
    claims = [simulated(Random(seed), 1.3).claim for seed in range(100)]
    assert claims.count(SpeedClaim.PAYS) >= 80
    assert claims.count(SpeedClaim.DOES_NOT_PAY) == 0
