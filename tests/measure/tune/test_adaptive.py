"""The engine's file of steps by batch size. tests/e2e/test_tune.py has the engine read one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from speclaunch.core.errors import InputError, LaunchError
from speclaunch.measure.tune.model import DraftSetting, objective, settings, trial_models
from speclaunch.measure.tune.writing import (
    adaptive_words,
    checked,
    configuration,
    require_adaptive,
)
from tests.measure.tune.making import trial
from tests.support.program import run

SPACE = settings("EAGLE3")


def test_each_load_has_its_steps() -> None:
    """Deep at one request, where a step costs little; shallow where many tokens cost much."""
    shares = (0.9, 0.81, 0.73, 0.66, 0.59, 0.53, 0.48, 0.43)
    trials = []
    for load, by_token in ((1, 0.0001), (32, 0.01)):
        for steps in (1, 8):
            one = trial(DraftSetting(steps, 1, steps + 1), 0.01 + by_token * steps, 1, load)
            length = 1 + sum(shares[:steps])
            given = {name: getattr(one, name) for name in one.__slots__}
            new = {**given, "accept_length": length, "accepted": shares[:steps]}
            trials.append(type(one)(**new))
    file = configuration(trial_models(objective("throughput@1,32"), trials), SPACE)
    assert list(file) == ["1", "32"]
    assert max(file["1"]["candidate_steps"]) == 8
    assert max(file["32"]["candidate_steps"]) < 8
    for entry in file.values():
        assert entry["candidate_steps"] == sorted(set(entry["candidate_steps"]))


def test_where_there_is_no_such_file() -> None:
    require_adaptive("EAGLE3", "0.5.23", SPACE)
    with pytest.raises(InputError, match="EAGLE and EAGLE3 only"):
        require_adaptive("STANDALONE", "0.5.23", SPACE)
    with pytest.raises(InputError, match="has no speculative_adaptive_config"):
        require_adaptive("EAGLE3", "0.5.3", SPACE)
    with pytest.raises(InputError, match="no chain"):
        require_adaptive("EAGLE3", "0.5.23", [one for one in SPACE if one.topk > 1])


def test_an_engine_that_cannot_read_it_is_said() -> None:
    """This interpreter has no SGLang."""
    with pytest.raises(LaunchError, match="rejects"):
        checked({"1": {"candidate_steps": [1]}}, sys.executable, {})


@pytest.mark.thorough
def test_the_words_that_have_the_engine_use_it_are_ones_that_it_takes(tmp_path: Path) -> None:
    """Steps that all candidates contain, a chain, and no error of any rule."""
    path = tmp_path / "steps.json"
    file = {"16": {"candidate_steps": [1]}, "1": {"candidate_steps": [3, 5]}}
    path.write_text(json.dumps(file))
    words = adaptive_words(file, path)
    assert "args.speculative_num_steps=5" in words
    done = run("plan", "recipe=eagle3_llama8b", *words, "--hardware", "h100", "--engine", "0.5.23")
    assert done.returncode == 0, done.stdout + done.stderr
