"""Hostile files and streams end every verb with a clear error: exit 2 or 3, no traceback."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.program import run

DEEP = 50_000
SERVER = "python -m sglang.launch_server --model-path a/b\n"
BOMBS = {
    "flow.yaml": f"args: {'[' * DEEP}{']' * DEEP}\n# sglang\n",
    "map.yaml": f"defaults: {'{a: ' * DEEP}1{'}' * DEEP}\n",
    "template.yaml": f"# {{{{ x }}}} speclaunch: ignore\nargs: {'[' * DEEP}\n",
    "many.yaml": f"args: [{'a,' * 1_000_000}]\n",
    "a.json": f'{{"args": {"[" * DEEP}{"]" * DEEP}}}',
    "a.sh": f"python -m sglang.launch_server {'$(' * DEEP}",
    "a.py": f"import sglang\nsglang.Engine(model_path={'(' * DEEP}1{')' * DEEP})\n",
    "b.py": f"import sglang\nsglang.Engine(model_path=1{'+1' * DEEP})\n",
}
VERBS = (("lint", "--no-cache"), ("lint", "--fix"), ("migrate", "--to", "0.5.23"), ("import",))
TOML = {
    "lists": f"x = {'[' * DEEP}",
    "keys": f"x{'.x' * DEEP} = 1\n",
    "headers": f"[{'x.' * DEEP}x]\ny = 1\n",
    "digits": f"x = {'9' * 100_000}\n",
}


@pytest.mark.thorough
@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused(name: str, verb: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / name).write_text(BOMBS[name])
    done = run(*verb, name, cwd=tmp_path)
    assert done.returncode in (1, 2, 3), done.stderr
    assert "bug in speclaunch" not in done.stderr
    if verb[0] == "lint" and Path(name).suffix != ".py":
        assert done.returncode == 2
    if verb[0] == "lint":
        (tmp_path / "good.sh").write_text(SERVER)
        done = run("lint", "--output-format", "json", ".", cwd=tmp_path)
        assert '"good.sh"' in done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize("name", TOML)
def test_a_configuration_that_is_a_bomb_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "speclaunch.toml").write_text(TOML[name])
    (tmp_path / "a.sh").write_text(SERVER)
    done = run("lint", "a.sh", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "speclaunch.toml is not TOML: " in done.stderr
    assert "--> speclaunch.toml:1:1" in done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["device", "pipe"])
def test_a_special_file_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    (tmp_path / "a.sh").write_text(SERVER)
    (tmp_path / "c").mkdir()
    (tmp_path / "c/speclaunch.toml").write_text('baseline = "../x.yaml"\n')
    (tmp_path / "c/a.sh").write_text(SERVER)
    for words in (
        ("lint", "x.yaml"),
        ("lint", "--baseline", "x.yaml", "a.sh"),
        ("lint", "--config", "x.yaml", "a.sh"),
        ("lint", "c/a.sh"),
        ("migrate", "--to", "0.5.23", "x.yaml"),
        ("import", "x.yaml"),
        ("plan", "recipe=./x.yaml"),
    ):
        done = run(*words, cwd=tmp_path)
        assert done.returncode == 2, (words, done.stdout, done.stderr)
        assert "bug in speclaunch" not in done.stderr
    assert run("diagnose", "x.yaml", cwd=tmp_path).returncode == (3 if kind == "pipe" else 2)


@pytest.mark.thorough
@pytest.mark.parametrize("verb", [("lint",), ("import",), ("migrate", "--to", "0.5.23")])
def test_standard_input_has_a_limit(verb: tuple[str, ...], tmp_path: Path) -> None:
    done = run(*verb, "-", cwd=tmp_path, given=b"x" * ((10 << 20) + 1))
    assert done.returncode == 2
    assert "cannot read standard input: more than 10 MiB" in done.stderr


@pytest.mark.thorough
def test_a_name_that_no_file_can_have_is_an_error(tmp_path: Path) -> None:
    name = "x" * 100_000
    (tmp_path / "a.sh").write_text(SERVER)
    for words in (
        ("lint", f"{name}.sh"),
        ("lint", "--config", name, "a.sh"),
        ("lint", "--output-file", f"json={name}", "a.sh"),
        ("import", name),
        ("migrate", "--to", "0.5.23", name),
        ("diagnose", name),
        ("plan", f"recipe={name}"),
        ("launch", "--dry-run", f"recipe=./{name}.yaml"),
        ("doctor", f"recipe={name}"),
    ):
        done = run(*words, cwd=tmp_path)
        assert done.returncode == 2, (words[0], done.stderr[:300])
    done = run("lint", "a.sh", f"{name}.sh", cwd=tmp_path)
    assert "1 deployment" in done.stdout
