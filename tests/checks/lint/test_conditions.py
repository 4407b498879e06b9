"""Findings about words that a script has under a condition alone say so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.program import run


def lint(path: Path, script: str) -> list[dict[str, Any]]:
    path.write_text(script)
    done = run("lint", "--no-cache", "--output-format", "json", "--engine", "0.5.23", path)
    findings: list[dict[str, Any]] = json.loads(done.stdout)["files"][0]["findings"]
    return [one for one in findings if one["severity"] != "info"]


@pytest.mark.thorough
def test_a_finding_in_a_branch_names_its_condition(tmp_path: Path) -> None:
    (found,) = lint(
        tmp_path / "x.sh",
        "A=(--model-path a/b)\nif x; then\n"
        "  A+=(--speculative-algorithm EAGLE --speculative-num-steps 3)\nfi\n"
        'python3 -m sglang.launch_server "${A[@]}"\n',
    )
    assert (found["severity"], found["line"]) == ("error", 3)
    assert found["why"].endswith("; only under the condition of line 2")


@pytest.mark.thorough
def test_a_finding_that_is_certain_names_none(tmp_path: Path) -> None:
    (found,) = lint(
        tmp_path / "x.sh",
        "A=()\nif x; then A+=(--tp 1); fi\n"
        'python3 -m sglang.launch_server --model-path a/b --bogus "${A[@]}"\n',
    )
    assert "condition" not in found["why"]
