"""What is tuned for: how it is said, and what is best for it."""

from __future__ import annotations

import math

import pytest

from speclaunch.core.errors import InputError
from speclaunch.measure.tune.model import Aim, DraftSetting, objective, trial_models, worth
from speclaunch.measure.tune.trials import next_trial, ranked
from tests.measure.tune.making import DEEP, OWN, TREE, trial
from tests.support.loops import rows


def test_as_the_command_line_says_it() -> None:
    assert objective("latency").concurrencies == (1,)
    assert objective("throughput@1,8,32").concurrencies == (1, 8, 32)
    found = objective("goodput@8:ttft=500,tpot=50")
    assert found.aim is Aim.GOODPUT and [str(one) for one in found.within] == [
        "ttft=500",
        "tpot=50",
    ]
    for text in ("latency", "throughput@1,8,32", "goodput@8:ttft=500,tpot=50"):
        assert str(objective(text)) == text


@rows(
    "text",
    [
        "fast",
        "latency@8",
        "throughput",
        "throughput@0",
        "throughput@8:ttft=5",
        "goodput@8",
        "goodput@8:ttft",
        "goodput@8:speed=4",
        "throughput@99999",
    ],
)
def test_what_is_no_objective_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        objective(text)


def test_several_loads_count_alike() -> None:
    """4 times as fast at one load weighs as much as 4 times as slow at the other."""
    aim = objective("throughput@1,8")
    trials = [
        *(trial(OWN, 0.01, 2, 1), trial(OWN, 0.02, 2, 8)),
        *(trial(DEEP, 0.01, 4, 1), trial(DEEP, 0.08, 4, 8)),  # 2 times as fast, half as fast
        *(trial(TREE, 0.01, 3, 1), trial(TREE, 0.03, 3, 8)),  # 1.5 times as fast, as fast
    ]
    model = trial_models(aim, trials)
    assert model.score(DEEP) == pytest.approx(model.score(OWN))
    assert model.score(TREE) - model.score(OWN) == pytest.approx(math.log(1.5) / 2)
    assert ranked(aim, trials)[0] == TREE
    assert ranked(objective("throughput@1"), trials)[0] == DEEP
    assert ranked(objective("throughput@8"), trials)[-1] == DEEP


def test_goodput_counts_the_requests_within_the_bounds() -> None:
    slow, fast = trial(OWN, 0.02, 2), trial(DEEP, 0.02, 4)  # 10 and 5 ms a token
    within = objective("goodput@1:tpot=7").within
    assert worth(fast, within) == pytest.approx(fast.requests_per_second, rel=1e-3)
    assert worth(slow, within) < 0.01 * slow.requests_per_second
    assert worth(slow, within, slower=0.5) > 0.9 * slow.requests_per_second
    assert worth(fast, within, slower=2) < 0.01
    tight = objective("goodput@1:ttft=50").within
    assert worth(slow, tight) < worth(fast, tight) < 0.01  # none meets it: the faster is nearer
    assert ranked(objective("goodput@1:tpot=7"), [slow, fast]) == (DEEP, OWN)


def test_a_setting_that_failed_is_not_tried_again() -> None:
    aim = objective("latency")
    space = (OWN, DEEP, TREE)
    assert next_trial(aim, (OWN, DEEP), OWN, [trial(OWN, 0.01, 2)], 5)[0] == DEEP
    assert next_trial(aim, space, OWN, [], 0)[0] is None


def test_without_bounds_it_is_the_speed() -> None:
    one = trial(DraftSetting(0, 1, 8), 0.01, 3)
    assert worth(one, ()) == pytest.approx(300)
    assert worth(one, (), slower=2) == pytest.approx(150)
