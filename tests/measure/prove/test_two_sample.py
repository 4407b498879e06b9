"""The test of samples on distributions that are known."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from speclaunch.measure.prove.proof import ALARM, Drawn, SamplePair, compared, statistic

REPEATS = 200
WEIGHTS = [0.5, 0.2, 0.1, 0.1, 0.05, 0.05]


def samples(weights: list[float], count: int, random: Random) -> tuple[tuple[int, ...], ...]:
    """`count` answers of two tokens; the second hangs on the first, as in text."""
    tokens = range(len(weights))
    found = []
    for one in random.choices(tokens, weights, k=count):
        (other,) = random.choices(tokens, [*weights[one:], *weights[:one]])
        found.append((one, other))
    return tuple(found)


def drawn(
    ours: list[float], theirs: list[float], random: Random, count: int = 80, prompts: int = 2
) -> Drawn:
    """The test on as many permutations as resolve the alarm."""
    pairs = [
        SamplePair(samples(ours, count, random), samples(theirs, count, random))
        for _ in range(prompts)
    ]
    return compared(pairs, draws=199, seed=random.getrandbits(32))


def shifted(by: float) -> list[float]:
    """`by` of the probability taken from the likeliest token and given to the second."""
    return [WEIGHTS[0] - by, WEIGHTS[1] + by, *WEIGHTS[2:]]


def test_the_statistic_is_pearsons() -> None:
    # 20 and 10 of a, 10 and 20 of b: every cell is 5 away from 15
    ours, theirs = Counter("a" * 20 + "b" * 10), Counter("a" * 10 + "b" * 20)
    assert statistic(ours, ours + theirs, 30, 30) == pytest.approx(4 * 25 / 15)
    ours, theirs = Counter("ab"), Counter("abab")
    assert statistic(ours, ours + theirs, 2, 4) == pytest.approx(0)
    # of unequal size: 8 and 2 of 10, 10 and 10 of 20; expected 6, 4, 12, 8
    ours, theirs = Counter("a" * 8 + "b" * 2), Counter("a" * 10 + "b" * 10)
    wanted = 4 / 6 + 4 / 4 + 4 / 12 + 4 / 8
    assert statistic(ours, ours + theirs, 10, 20) == pytest.approx(wanted)


@pytest.mark.thorough
def test_samples_of_one_distribution_are_alarms_as_often_as_is_said() -> None:
    """200 null draws: at 1 %, 2 alarms are to be expected and more than 7 come once in 1,000."""
    random = Random(7)
    found = [drawn(WEIGHTS, WEIGHTS, random).probability for _ in range(REPEATS)]
    assert sum(one <= ALARM for one in found) <= 7
    assert 2 <= sum(one <= 0.05 for one in found) <= 20  # 10 are to be expected
    assert 80 <= sum(one <= 0.5 for one in found) <= 120  # 100


@pytest.mark.thorough
def test_a_shift_is_seen() -> None:
    """200 alternatives: 0.3 of the probability at another token, 80 samples of two prompts."""
    random = Random(7)
    seen = sum(drawn(WEIGHTS, shifted(0.3), random).probability <= ALARM for _ in range(REPEATS))
    assert seen >= 186


@pytest.mark.thorough
def test_small_shifts_need_many_samples() -> None:
    """0.15 at another token, eight prompts: seldom seen with 25 samples each, mostly with 100."""
    random = Random(7)

    def seen(count: int) -> int:
        return sum(
            drawn(WEIGHTS, shifted(0.15), random, count, 8).probability <= ALARM for _ in range(20)
        )

    assert seen(25) <= 8
    assert seen(100) >= 15


@pytest.mark.thorough
def test_a_shift_at_one_prompt_of_eight_is_seen() -> None:
    random = Random(7)
    same = [
        SamplePair(samples(WEIGHTS, 50, random), samples(WEIGHTS, 50, random)) for _ in range(7)
    ]
    other = SamplePair(samples(WEIGHTS, 50, random), samples(shifted(0.45), 50, random))
    assert compared(same).probability > ALARM
    assert compared([*same, other]).probability <= ALARM


def test_a_server_that_is_greedy_where_the_other_samples_is_seen() -> None:
    random = Random(7)
    greedy = SamplePair(((0, 0),) * 40, samples(WEIGHTS, 40, random))
    assert compared([greedy]).probability <= 1 / 2001


def test_what_is_no_alarm_ends_early() -> None:
    same = ((1, 2), (3, 4)) * 20
    found = compared([SamplePair(same, same)])
    assert (found.probability, found.positions) == (1.0, 2)
    assert found.draws < 50


@pytest.mark.parametrize("pair", [SamplePair((), ((1,),)), SamplePair(((1,),), ())])
def test_an_empty_sample_says_nothing(pair: SamplePair) -> None:
    with pytest.raises(ValueError, match="empty"):
        compared([pair])
