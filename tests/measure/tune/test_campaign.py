"""What `campaigns/tuning.py` measured on the CPU engine, and what it has to show."""

from __future__ import annotations

import json
from typing import Any

import pytest

from campaigns import tuning as campaign
from speclaunch.measure.tune.model import DraftSetting, objective, settings
from speclaunch.measure.tune.trials import next_trial, ranked
from tests.measure.tune.making import trial

STORED = {path.stem: json.loads(path.read_text()) for path in sorted(campaign.STORE.glob("*.json"))}
ALGORITHMS = {"cpu_standalone": "STANDALONE", "cpu_eagle3": "EAGLE3", "cpu_ngram": "NGRAM"}
WHOLE = 60
"""Settings of an exhaustive grid, at least."""


@pytest.mark.parametrize("recipe", STORED)
def test_each_setting_of_the_grid_was_measured_once_and_some_again(recipe: str) -> None:
    document: dict[str, Any] = STORED[recipe]
    assert document["recipe"] == recipe
    keys = [(campaign._setting(one), one["repeat"]) for one in document["trials"]]
    assert len(set(keys)) == len(keys)
    space = set(settings(ALGORITHMS[recipe], campaign.most_of(ALGORITHMS[recipe])))
    assert {setting for setting, _ in keys} <= space
    for one in document["trials"]:
        assert one["step_seconds"] > 0
        assert 1 <= one["accept_length"] <= campaign._setting(one).tokens + 1


@pytest.mark.parametrize("recipe", [name for name, one in STORED.items() if "regret" in one])
def test_tune_chose_as_well_as_the_grid_says(recipe: str) -> None:
    """On a fresh measurement: within 5 %, or the noise of two starts of the same setting."""
    document = STORED[recipe]
    noise = campaign.repeat_noise(document)
    algorithm = ALGORITHMS[recipe]
    space = settings(algorithm, campaign.most_of(algorithm))
    assert document["tune"]["starts"] <= campaign.starts_of(len(space))
    assert campaign.regret_of(document) <= max(0.05, noise)
    assert document["regret"]["chosen"] == campaign.asdict(
        campaign._of_arguments(document["tune"]["best"])
    )


@pytest.mark.parametrize("recipe", STORED)
def test_the_measured_grid_is_searched_well(recipe: str) -> None:
    """The search over what was measured, as often as the grid was whole: with a fifth of it tried,
    what it finds is near the best that was measured."""
    document = STORED[recipe]
    speeds = {campaign._setting(one): one for one in document["trials"] if not one["repeat"]}
    if len(speeds) < WHOLE:
        pytest.skip(f"{len(speeds)} settings are measured so far")
    aim, space, tried = objective("latency"), tuple(speeds), []
    while (setting := next_trial(aim, space, None, tried, len(space) // 5)[0]) is not None:
        one = speeds[setting]
        made = trial(setting, one["step_seconds"], one["accept_length"])
        given = {name: getattr(made, name) for name in made.__slots__}
        tried.append(type(made)(**{**given, "accepted": tuple(one["accepted"])}))
    found = speeds[ranked(aim, tried)[0]]
    best = max(map(campaign._speed, speeds.values()))
    assert campaign._speed(found) >= best * (1 - max(0.05, campaign.repeat_noise(document)))


def test_noise_and_regret_of_a_document() -> None:
    def one(repeat: int, seconds: float, tokens: int = 4) -> dict[str, Any]:
        setting = {"steps": tokens - 1, "topk": 1, "tokens": tokens}
        return {
            "setting": setting,
            "repeat": repeat,
            "step_seconds": seconds,
            "accept_length": 2.0,
        }

    document = {"trials": [one(0, 0.010), one(1, 0.011), one(0, 0.02, 6)]}
    assert campaign.repeat_noise(document) == pytest.approx(0.0953, abs=1e-3)
    assert DraftSetting(**campaign.best(document)) == DraftSetting(3, 1, 4)
    assert campaign.regret_of({"regret": {"ratio": 0.97}}) == pytest.approx(0.03)
    assert campaign.regret_of({"regret": {"ratio": 1.2}}) == 0
