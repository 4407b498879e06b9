"""The comparison of the best: what it claims, and what it refuses."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from speclaunch.measure.bench.measurement import Round
from speclaunch.measure.bench.workload import Prompts
from speclaunch.measure.tune.model import DraftSetting, objective
from speclaunch.measure.tune.trials import OWN as NAME
from speclaunch.measure.tune.trials import Protocol, verdict
from tests.measure.tune.making import DEEP, TREE, a_round

PROTOCOL = Protocol(Prompts("code", 64, ("x",)), (1,), 4, 3)


def rounds(
    speeds: dict[str, float], count: int = 6, seed: int = 1, noise: float = 0.02
) -> list[Round]:
    random = Random(seed)
    return [
        a_round(side, number, speed * (1 + random.gauss(0, noise)))
        for number in range(count)
        for side, speed in speeds.items()
    ]


def test_the_winner_is_the_best_that_is_shown_to_be_faster() -> None:
    measured = rounds({NAME: 100, str(DEEP): 120, str(TREE): 140})
    found = verdict(objective("latency"), PROTOCOL, [DEEP, TREE], measured)
    assert found.winner is not None and found.winner.setting == TREE
    assert found.winner.ratio.low < 1.4 < found.winner.ratio.high


def test_where_nothing_is_shown_nobody_wins() -> None:
    measured = rounds({NAME: 100, str(DEEP): 101, str(TREE): 80}, noise=0.05)
    found = verdict(objective("latency"), PROTOCOL, [DEEP, TREE], measured)
    assert found.winner is None and len(found.compared) == 2 and not found.refused


@pytest.mark.thorough
def test_it_seldom_claims_that_one_of_several_alike_is_faster() -> None:
    """At most 5 % of comparisons of settings that do not differ, over all that are compared."""
    claims = 0
    for seed in range(400):
        measured = rounds({NAME: 100, str(DEEP): 100, str(TREE): 100}, seed=seed, noise=0.05)
        found = verdict(objective("latency"), PROTOCOL, [DEEP, TREE], measured)
        claims += found.winner is not None
    assert claims <= 0.05 * 400  # two-sided intervals: half of the errors are claims of "slower"


@pytest.mark.thorough
def test_settings_that_are_alike_in_other_engines_are_seldom_claimed_to_be_faster() -> None:
    """Each start has a speed of its own; the rounds of one start do not tell."""
    claims = {1: 0, 3: 0}
    for seed in range(200):
        random, rest = Random(seed), rounds({NAME: 100, str(DEEP): 100}, seed=seed, noise=0.005)
        of_start = {
            (side, n): random.gauss(1, 0.03) for side in (NAME, str(DEEP)) for n in range(3)
        }
        for starts in claims:
            measured = [
                replace(one, seconds=one.seconds / of_start[one.side, one.number % starts])
                for one in rest
            ]
            found = verdict(objective("latency"), PROTOCOL, [DEEP], measured, starts)
            claims[starts] += found.winner is not None
    assert claims[3] <= 0.05 * 200 and claims[1] > 0.25 * 200


def test_several_loads_are_one_claim() -> None:
    measured = [
        a_round(side, number, speed * (1 + 0.01 * (number % 3)), load)
        for number in range(6)
        for load in (1, 2)
        for side, speed in ((NAME, 100), (str(DEEP), 200 if load == 1 else 50))
    ]
    protocol = Protocol(PROTOCOL.prompts, (1, 2), 4, 3)
    found = verdict(objective("throughput@1,2"), protocol, [DEEP], measured)
    assert found.winner is None
    (one,) = found.compared
    ratios = {load.concurrency: load.ratio for load in one.by_load}
    assert ratios == pytest.approx({1: 2.0, 2: 0.5})
    assert one.ratio.ratio == pytest.approx(1.0)


def test_what_does_not_count_has_no_winner() -> None:
    measured = rounds({NAME: 100, str(DEEP): 140})
    few = [one for one in measured if one.number < 2]
    assert verdict(objective("latency"), PROTOCOL, [DEEP], few).refused
    protocol = Protocol(PROTOCOL.prompts, (1,), 5, 3)
    refused = verdict(objective("latency"), protocol, [DEEP], measured)
    assert refused.refused and refused.winner is None
    wide = DraftSetting(1, 1, 2)  # an acceptance length of 3.2 is not possible with 2 draft tokens
    named = [one if one.side == NAME else a_round(str(wide), one.number, 90) for one in measured]
    assert verdict(objective("latency"), PROTOCOL, [wide], named).refused


def test_goodput_of_rounds_in_which_no_request_is_good_is_refused() -> None:
    measured = rounds({NAME: 100, str(DEEP): 140})
    found = verdict(objective("goodput@1:ttft=1"), PROTOCOL, [DEEP], measured)
    assert found.refused == ("in one round, no request met the bounds",)
    good = verdict(objective("goodput@1:ttft=500"), PROTOCOL, [DEEP], measured)
    assert good.winner is not None and good.winner.setting == DEEP
