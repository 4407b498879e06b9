"""The tutorial's commands that need no engine print what the page shows.

tests/e2e/test_tutorial.py runs the others on the CPU engine.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import program
from tests.support.tutorial import Step, steps

FAILS = "0.5.10.post1"
"""The release of the command that is shown to fail."""


def test_the_output_of_a_step_is_compared_line_by_line() -> None:
    step = Step("speclaunch ps", ("run  state", "…", "a  serving"))
    assert step.missing("run state\nother\na serving  \n") == []
    assert step.missing("run state\nb serving\n") == ["a  serving"]


@pytest.mark.thorough
def test_the_path_to_a_checked_recipe_prints_what_the_page_shows(tmp_path: Path) -> None:
    mine = [step for step in steps() if not step.on_the_engine]
    assert len(mine) > 5
    for step in mine:
        if step.text.startswith("tail"):
            output, code = (tmp_path / "qwen3.yaml").read_text(), 0
        else:
            starts = step.text.startswith(("speclaunch recipe=", "speclaunch bench"))
            words = [*step.words, *(["--dry-run"] if starts else [])]  # there is no GPU
            done = program.run(*words, cwd=tmp_path)
            output, code = done.stdout + done.stderr, done.returncode
        assert code == (FAILS in step.text), f"{step.text}\n{output}"
        assert not step.missing(output), f"{step.text}\n{step.missing(output)}\n{output}"
