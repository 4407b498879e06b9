"""CPU engines that a search installs: bounded, marked, removable."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from speclaunch.engine import RELEASES, CpuEngine
from speclaunch.serving.cpu_engine import on_demand
from speclaunch.serving.cpu_engine.on_demand import (
    make_room,
    mark_on_demand,
    note_use,
    on_demand_engines,
    remove_engine,
)
from speclaunch.serving.cpu_engine.programs import InstallError

HELD = tuple(RELEASES)


def made(home: Path, release: str, *, used: int | None) -> CpuEngine:
    """An engine of some bytes; `used`: when, if it was installed on demand."""
    engine = CpuEngine(home, release)
    engine.python.parent.mkdir(parents=True)
    engine.python.symlink_to(sys.executable)
    (engine.venv / "data").write_bytes(b"a" * 5000)
    engine.manifest.write_text("{}")
    if used is not None:
        mark_on_demand(engine)
        os.utime(engine.root / "on-demand", (used, used))
    return engine


def test_the_least_recently_used_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_demand, "MOST_ENGINES", 3)
    engines = [made(tmp_path, release, used=at) for at, release in enumerate(HELD[1:4])]
    own = made(tmp_path, HELD[4], used=None)
    assert [entry.engine.release for entry in on_demand_engines(tmp_path)] == list(HELD[1:4])
    assert make_room(tmp_path, [HELD[1]]) == [HELD[2]]
    assert engines[0].venv.exists() and not engines[1].root.exists() and own.venv.exists()
    assert make_room(tmp_path, []) == []


def test_disk_space_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for at, release in enumerate(HELD[1:3]):
        made(tmp_path, release, used=at)
    size = on_demand_engines(tmp_path)[0].bytes
    monkeypatch.setattr(on_demand, "MOST_BYTES", on_demand._ENGINE_BYTES + size)
    assert make_room(tmp_path, []) == [HELD[1]]


def test_without_room_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_demand, "MOST_ENGINES", 1)
    made(tmp_path, HELD[1], used=1)
    with pytest.raises(InstallError) as caught:
        make_room(tmp_path, [HELD[1]])
    assert "engine rm cpu" in str(caught.value.problems[0].help)


def test_use_is_noted_only_on_demand(tmp_path: Path) -> None:
    engine, own = made(tmp_path, HELD[1], used=1), made(tmp_path, HELD[2], used=None)
    note_use(engine)
    note_use(own)
    (entry,) = on_demand_engines(tmp_path)
    assert entry.engine == engine and entry.used > 1


def test_the_models_of_all_engines_remain(tmp_path: Path) -> None:
    engine = made(tmp_path, HELD[0], used=None)
    engine.model("cycle").mkdir(parents=True)
    remove_engine(engine)
    assert engine.model("cycle").is_dir() and not engine.venv.exists()
    assert not engine.manifest.exists()


@pytest.mark.thorough
def test_an_engine_in_use_is_not_removed(tmp_path: Path) -> None:
    engine = made(tmp_path, HELD[1], used=1)
    with subprocess.Popen([engine.python, "-c", "input()"], stdin=subprocess.PIPE) as process:
        with pytest.raises(InstallError, match=f"process {process.pid} uses"):
            remove_engine(engine)
        process.kill()
    remove_engine(engine)
    assert not engine.root.exists()
