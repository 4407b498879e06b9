"""What was tried is kept, and forgotten where that is asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from speclaunch.core import files
from speclaunch.core.reads.safe_json import read_json
from speclaunch.measure.bench.measurement import Interval
from speclaunch.measure.tune.trials import (
    Compared,
    LoadRatio,
    TrialStart,
    TuningVerdict,
    Verified,
    stored_starts,
)
from tests.measure.tune.making import DEEP, trial


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path))
    return tmp_path


def test_what_is_to_be_forgotten_does_not_come_back_after_an_interrupt() -> None:
    memory = stored_starts("k", fresh=False)
    memory.failed["8 steps"] = "no room"  # type: ignore[index]
    memory.write()
    assert stored_starts("k", fresh=False).tried == 1
    assert stored_starts("k", fresh=True).tried == 0
    assert stored_starts("k", fresh=False).tried == 0  # though nothing was written meanwhile


def test_an_interrupted_write_leaves_the_old_file_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home / "a.json"
    files.write_json(path, {"a": 1})

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.write_json(path, {"a": 2})
    assert [one.name for one in home.iterdir()] == ["a.json"]
    assert read_json(path) == {"a": 1}


FOUND = TuningVerdict((Compared(DEEP, Interval(1.5, 1.25, 1.75, 6), (LoadRatio(8, 1.5),)),))


def test_what_was_measured_is_there_again() -> None:
    memory = replace(
        stored_starts("k", fresh=False),
        starts=(TrialStart(DEEP, (trial(DEEP, 0.01, 3),), 20.0),),
        failed={"8 steps": "no room"},
        verified=Verified((str(DEEP),), 3, FOUND),
        compared=4,
    )
    memory.write()
    assert stored_starts("k", fresh=False) == memory


def test_a_comparison_that_an_earlier_version_stored_is_read() -> None:
    old = {
        "refused": [],
        "compared": [{"setting": [5, 1, 6], "ratio": [1.5, 1.25, 1.75, 6], "by_load": [[8, 1.5]]}],
    }
    verified = {"settings": [str(DEEP)], "starts_each": 1, "verdict": old}
    path = stored_starts("k", fresh=False).path
    document = {"version": 3, "starts": [], "failed": {}, "verified": verified, "compared": 2}
    path.write_text(json.dumps(document))
    assert stored_starts("k", fresh=False).verified == Verified((str(DEEP),), 1, FOUND)
