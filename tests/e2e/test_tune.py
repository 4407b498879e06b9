"""Tuning with the real engine on the CPU: interrupted, gone on with, compared, written."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest
from msgspec import convert

from speclaunch.app.output.tuning import TuneDocument
from speclaunch.core.errors import LaunchError
from speclaunch.core.resources import recipes_dir
from speclaunch.deployments.recipe.compose import compose
from speclaunch.engine.facts.cpu_engine import CpuEngine
from speclaunch.measure.tune.writing import checked
from tests.e2e.conftest import Marked

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

STEPS, TOKENS = "speculative_num_steps", "speculative_num_draft_tokens"
DRAFT, WRONG_DRAFT = "cycle-draft}", "cycle-draft-95}"
DEEP = f"""
  {STEPS}: 8
  {TOKENS}: 9
"""


def test_a_recipe_that_drafts_too_deep_is_tuned(marked: Marked, tmp_path: Path) -> None:
    """8 steps of a draft that is wrong about 95 % of the tokens: one step serves 2.6 times as fast,
    which no load of the machine hides."""
    path = tmp_path / "mine.yaml"
    text = (recipes_dir() / "cpu_standalone.yaml").read_text()
    assert DRAFT in text
    path.write_text(text.replace(DRAFT, WRONG_DRAFT).rstrip() + DEEP)
    before = path.read_text()
    words = [
        *("tune", f"recipe={path}", "--workload", "code", "--starts", "4", "--verify", "1"),
        *("--draft-tokens", "9"),
        *("--rounds", "1", "--requests", "3", "--output-tokens", "24", "--write"),
        *("--output-format", "json"),
    ]
    begun = marked.begin(*words)
    assert begun.stderr is not None
    for line in begun.stderr:
        if "tokens/s per request" in line:
            break
    begun.send_signal(signal.SIGINT)
    begun.communicate(timeout=120)
    assert begun.returncode == 130
    assert marked.left() == [] and path.read_text() == before

    done = marked.run(*words)
    assert "resuming: 1 settings already measured" in done.stderr
    assert "min left" in done.stderr
    assert marked.left() == []
    found = convert(json.loads(done.stdout), TuneDocument)
    assert found.own is not None and (found.own[STEPS], found.own[TOKENS]) == (8, 9)
    assert found.starts <= 4
    assert found.comparison is not None, done.stderr
    assert found.best is not None and found.best[STEPS] < 8
    assert all("it became" in one for one in found.comparison.objections), done.stderr
    assert done.returncode == (0 if found.comparison.counts else 1), done.stderr
    if not found.comparison.counts:  # the machine drifted: refused, and nothing is written
        assert path.read_text() == before and found.written is None
        return
    assert found.comparison.settings[0].claim == "faster", done.stderr
    args = compose(str(path), (), ()).values["args"]
    assert {name: args[name] for name in found.best} == found.best
    assert re.search(r"# tuned 20\d\d-\d\d-\d\d: \d\.\d\d \(", path.read_text())
    assert found.written == str(path)


@pytest.mark.core(0)
def test_the_engine_reads_what_is_written_for_it(cpu_engine: CpuEngine) -> None:
    env, python = cpu_engine.environment(os.environ), str(cpu_engine.python)
    checked({"1": {"candidate_steps": [3, 5, 8]}, "16": {"candidate_steps": [1]}}, python, env)
    with pytest.raises(LaunchError, match="candidate_steps must be a list"):
        checked({"1": {"candidate_steps": []}}, python, env)
