"""`speclaunch engine judge`: what is refused before anything is made, what is listed and removed."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from speclaunch.app.verbs.commands import app, register
from speclaunch.checks.engine_check.installed_judges import (
    AddedJudge,
    added_judges,
    all_judges,
    folder,
    remove,
    write,
)
from speclaunch.core.errors import InputError, LaunchError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path))
    return tmp_path


def run(*words: str) -> str:
    register(["engine"])
    result = CliRunner().invoke(app, ["engine", "judge", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def a_judge(home: Path, name: str) -> AddedJudge:
    python = home / "python"
    python.touch()
    made = AddedJudge(name, "0.5.18", str(python), "PyPI", "d", 5 << 20)
    write(made)
    (folder(name) / "site").mkdir()
    return made


def test_none_is_told_with_what_to_do() -> None:
    assert "judge add VERSION" in run("ls")


def test_listed_then_removed(home: Path) -> None:
    made = a_judge(home, "0.5.18")
    assert added_judges() == [made]
    assert [judge.release for judge in all_judges()] == ["0.5.18"]
    listed = run("ls")
    assert "0.5.18" in listed and "5 MiB" in listed and "PyPI" in listed
    run("rm", "0.5.18")
    assert not folder("0.5.18").exists() and not added_judges()


def test_a_judge_that_is_half_there_is_none(home: Path) -> None:
    a_judge(home, "0.5.18")
    (folder("0.5.18") / "judge.json").write_text('{"name": "0.5.18"')
    assert added_judges() == []
    assert remove("0.5.18")


def test_one_whose_interpreter_is_gone_is_none(home: Path) -> None:
    a_judge(home, "0.5.18")
    (home / "python").unlink()
    assert added_judges() == []


@pytest.mark.parametrize("name", ["../cpu-engine", "..", "/", "", "a/b", ".lock"])
def test_nothing_else_is_removed(home: Path, name: str) -> None:
    other = home / "cpu-engine"
    other.mkdir()
    a_judge(home, "0.5.18")
    assert not remove(name)
    assert other.is_dir() and added_judges()


def test_a_wrong_name_is_met_with_the_right_one(home: Path) -> None:
    a_judge(home, "0.5.18")
    with pytest.raises(InputError) as caught:
        run("rm", "0.5.81")
    assert "0.5.18" in str(caught.value.problems[0].help)


@pytest.mark.parametrize("name", ["../x", "", "a b", "x" * 99])
def test_a_name_that_is_a_path_is_refused(name: str) -> None:
    with pytest.raises(InputError):
        run("add", name)


def test_without_the_cpu_engine_the_remedy_is_told(home: Path) -> None:
    with pytest.raises(LaunchError) as caught:
        run("add", "0.5.18", "--torch")
    assert "engine install cpu" in str(caught.value.problems[0].help)
    assert not list((home / "judges").glob("[!.]*"))


def test_an_interpreter_goes_with_installed_alone() -> None:
    with pytest.raises(InputError, match="--from installed"):
        run("add", "0.5.18", "--python", "python3")
