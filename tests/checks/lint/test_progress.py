"""A long lint is no silent one, and its result is untouched."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from speclaunch.checks.lint.lint_files import progress
from speclaunch.checks.lint.workers import waiting_for
from tests.support import program


@pytest.mark.thorough
def test_it_says_how_far_it_is() -> None:
    said: list[str] = []
    with progress(said.append, every=0.1) as follow:
        for path in ("a.sh", "b.sh"):
            follow(path)
            time.sleep(0.3)
    assert "0 files checked in 0 s, at a.sh" in said
    assert "1 file checked in 0 s, at b.sh" in said


@pytest.mark.thorough
def test_it_says_what_it_waits_for() -> None:
    said: list[str] = []

    with progress(said.append, every=0.1) as follow:
        time.sleep(0.3)
        with waiting_for("the validation of SGLang 0.5.23"):
            time.sleep(0.3)
        follow("a.sh")
    assert said[0] == "0 files checked in 0 s, checking others"
    assert "0 files checked in 0 s, waiting for the validation of SGLang 0.5.23" in said


def test_a_short_lint_says_nothing() -> None:
    said: list[str] = []
    with progress(said.append) as follow:
        follow("a.sh")
    assert said == []


@pytest.mark.thorough
def test_what_is_wrong_with_a_recipe_is_told_with_what_is_wrong_in_it(tmp_path: Path) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        "defaults: [base, _self_]\n"
        "engin: {version: 0.5.23}\n"
        "foo: 3\n"
        "launch: {smok: 1, grace_seconds: soon}\n"
        "args:\n"
        "  model_path: meta-llama/Llama-3.1-8B-Instruct\n"
        "  tp_siz: 2\n"
        "  port: xyz\n"
    )
    words = ["lint", str(recipe), "--engine", "0.5.23", "--output-format", "json"]
    done = program.run(*words)
    assert done.returncode == 2, "it is still a recipe that nothing can launch"
    (file,) = json.loads(done.stdout)["files"]
    found = {(finding["code"], finding["line"]) for finding in file["findings"]}
    assert {("SPL000", 2), ("SPL000", 3), ("SPL000", 4), ("SPL001", 7), ("SPL003", 8)} <= found
    keys = [finding["message"] for finding in file["findings"] if finding["line"] == 4]
    assert any("launch.smok" in key for key in keys)
    assert any("launch.grace_seconds" in key for key in keys)
