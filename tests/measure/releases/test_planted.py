"""Planted regressions in scripted engines: the campaign's sample, interruptions, and its results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from campaigns import _engine_plants as engine_plants
from campaigns import releases as campaign
from speclaunch.measure.releases import bisect as searching
from speclaunch.measure.releases import upgrade_run
from tests.support.measure import planted
from tests.support.program import COMMAND

HELD = planted.RELEASES[-8:]


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "launched", planted.served)
    monkeypatch.setattr(upgrade_run, "launched", planted.served)
    monkeypatch.setenv("SPECLAUNCH_HOME", os.environ.get("SPECLAUNCH_HOME", ""))


@pytest.mark.thorough
@pytest.mark.parametrize("number", range(4))
def test_a_planted_regression_is_found(direct: None, number: int) -> None:
    row = campaign.bisect_case(number)
    assert row["right"] and row["within"], row


@pytest.mark.thorough
@pytest.mark.parametrize("number", [0, 2, 4, 6, 7])
def test_a_planted_regression_of_an_upgrade_is_found(direct: None, number: int) -> None:
    row = campaign.upgrade_case(number)
    assert row["right"], row


def test_the_campaign_found_enough() -> None:
    stored = json.loads(campaign.STORED.read_text())
    found = stored["bisect"]
    assert found["right"] == found["within the bound of starts"] == found["cases"]
    assert stored["flaky"]["right"] >= 0.95 * stored["flaky"]["cases"]
    assert stored["upgrade"]["caught"] >= 0.98 * stored["upgrade"]["planted"]
    assert stored["upgrade"]["false"] == 0


def test_an_engine_is_sound_after_a_plant_and_after_a_kill(tmp_path: Path) -> None:
    plant = engine_plants.PLANTS[0][1]
    package = tmp_path / "cpu-engine" / "venv/lib/python3.11/site-packages/sglang"
    module = package / plant.module
    module.parent.mkdir(parents=True)
    module.write_text("sound\n")
    with engine_plants.planted_engine(package, plant):
        assert module.read_text() == f"sound\n{plant.code}"
    assert module.read_text() == "sound\n"
    module.rename(module.with_suffix(".sound"))
    module.write_text("planted\n")  # as after a kill
    engine_plants.restore(tmp_path)
    assert module.read_text() == "sound\n" and list(module.parent.iterdir()) == [module]


def bisect(folder: Path, words: list[str]) -> subprocess.Popen[str]:
    env = {**os.environ, "SPECLAUNCH_HOME": str(folder / "home")}
    return subprocess.Popen(
        [*COMMAND, "bisect", *words, "--output-format=json"],
        env=env,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.thorough
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_search_loses_no_finished_probe(tmp_path: Path, ending: int) -> None:
    pythons = planted.engines(tmp_path, HELD, 3, planted.PLANTS["start"][0])
    words = [f"recipe={planted.recipe(tmp_path, pythons[HELD[0]])}", f"--good={HELD[0]}"]
    words += [f"--bad={HELD[-1]}", "--check=start", *planted.options(pythons)]
    first = bisect(tmp_path, words)
    assert first.stderr is not None
    seen = ""
    while "probe 2" not in seen:
        line = first.stderr.readline()
        assert line, seen
        seen += line
    first.send_signal(ending)
    _, rest = first.communicate(timeout=60)
    assert first.returncode == (130 if ending == signal.SIGINT else -9)
    if ending == signal.SIGINT:
        assert "1 probes saved" in rest and "repeat the command" in rest
    second = bisect(tmp_path, words)
    out, told = second.communicate(timeout=100)
    assert second.returncode == 0, told
    assert "1 probes saved; --fresh starts over" in told and "probe 1:" not in told
    found = json.loads(out)
    assert found["pair"] == {"good": HELD[2], "bad": HELD[3]}
    assert found["starts"] <= 4
    psutil.wait_procs([one for one in psutil.process_iter() if _is_ours(one, tmp_path)], 20)
    assert not [one for one in psutil.process_iter() if _is_ours(one, tmp_path)]


def _is_ours(process: psutil.Process, folder: Path) -> bool:
    try:
        return any(str(folder) in word for word in process.cmdline())
    except psutil.Error:
        return False
