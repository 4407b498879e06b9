"""What was tried is kept, and forgotten where that is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from speclaunch.launch import atomic_files
from speclaunch.tuning.trials import kept


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path))
    return tmp_path


def test_what_is_to_be_forgotten_does_not_come_back_after_an_interrupt() -> None:
    memory = kept("k", fresh=False)
    memory.failed["8 steps"] = "no room"  # type: ignore[index]
    memory.write()
    assert kept("k", fresh=False).tried == 1
    assert kept("k", fresh=True).tried == 0
    assert kept("k", fresh=False).tried == 0  # though nothing was written meanwhile


def test_an_interrupted_write_leaves_the_old_file_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home / "a.json"
    atomic_files.write_json(path, {"a": 1})

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        atomic_files.write_json(path, {"a": 2})
    assert [one.name for one in home.iterdir()] == ["a.json"]
    assert atomic_files.read_json(path) == {"a": 1}
