"""A recipe is named in the same ways whatever is asked about it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support import program


def run(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return program.run(*words, cwd=cwd, env={**os.environ, "COLUMNS": "200"})


VERBS = (
    ("plan", "--hardware", "h200:8"),
    ("doctor",),
    ("launch", "--dry-run", "--engine", "0.5.23", "--hardware", "h200:8"),
    ("render", "--to", "shell", "--engine", "0.5.23"),
)


@pytest.mark.thorough
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: str(verb[0]))
def test_a_bare_name_is_a_recipe_for_every_verb(verb: tuple[str, ...]) -> None:
    name, *options = verb
    said = run(name, "mtp_glm46", "args.port=30123", *options)
    assert "no recipe specified" not in said.stderr
    assert said.returncode in (0, 1)
    asked = run(name, "recipe=mtp_glm46", "args.port=30123", *options)
    assert said.returncode == asked.returncode
    if name == "doctor":  # how much memory is free changes from one look to the next
        assert said.stdout.splitlines()[-1] == asked.stdout.splitlines()[-1]
    else:
        assert said.stdout == asked.stdout


@pytest.mark.parametrize("verb", ["launch", "doctor", "render"])
def test_two_names_are_refused_by_name(verb: str) -> None:
    options = ["--to", "shell"] if verb == "render" else []
    done = run(verb, "recipe=mtp_glm46", "cpu_ngram", *options)
    assert done.returncode == 2
    assert "several recipes specified: mtp_glm46, cpu_ngram" in done.stderr


@pytest.mark.thorough
def test_a_recipe_in_the_place_of_a_verb_is_answered_with_the_command(tmp_path: Path) -> None:
    done = run("mtp_glm46", "--dry-run")
    assert done.returncode == 2
    assert "launch it: speclaunch launch mtp_glm46 --dry-run" in done.stderr
    (tmp_path / "mine.yaml").write_text("args: {model_path: m}\n")
    done = run("mine.yaml", cwd=tmp_path)
    assert "launch it: speclaunch launch mine.yaml" in done.stderr
    assert "No such command 'nonsense'" in run("nonsense").stderr


@pytest.mark.thorough
def test_recipes_are_listed_from_where_siblings_take_them(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("description: of my own\nargs: {model_path: m}\n")
    for words in (
        ("recipes", "ls", "--config-dir", str(tmp_path)),
        ("recipes", "--config-dir", str(tmp_path), "ls"),
        ("recipes", "--config-dir", str(tmp_path)),
    ):
        done = run(*words)
        assert done.returncode == 0, done.stderr
        assert "of my own" in done.stdout, words
    wrong = run("recipes", "ls", "--config-dir", str(tmp_path / "nowhere"))
    assert wrong.returncode == 2
    assert "nowhere: no such directory" in wrong.stderr
