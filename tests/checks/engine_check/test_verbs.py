"""plan, doctor and launch with a judge: values, refusals, and a start that does not happen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from speclaunch.app.verbs.commands import app, register
from speclaunch.app.verbs.launch import launch
from speclaunch.app.verbs.start_options import LaunchOptions
from speclaunch.checks.engine_check.opinions import Verdicts
from speclaunch.checks.engine_check.questions import EngineAnswer, EngineQuestion
from speclaunch.checks.rules.examine import Lookup, PreflightError
from speclaunch.checks.rules.interface import Severity
from speclaunch.checks.rules.registry import all_rules
from speclaunch.core.errors import ExitCode, SpeclaunchError
from speclaunch.deployments.recipe.load import load
from speclaunch.deployments.targets.prepare import prepare
from speclaunch.engine.facts.hardware import declare
from speclaunch.engine.facts.project_settings import EngineCheckMode
from speclaunch.serving.launch.preflight import preflight
from tests.checks.engine_check.scripted_judge import (
    MODEL,
    RELEASE,
    ScriptedJudge,
    asker,
    at_hand,
    refuses,
)

RECIPE = f"""name: r
engine: {{version: "{RELEASE}"}}
hardware: {{name: h200}}
args:
  model_path: {MODEL}
  stream_interval: 4
"""


@pytest.fixture(autouse=True)
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "r.yaml"
    path.write_text(RECIPE)
    return path


STREAM = refuses("--stream-interval")


def invoke(*words: str) -> tuple[int, str]:
    register([words[0]])
    done = CliRunner().invoke(app, list(words))
    if isinstance(done.exception, SpeclaunchError):
        return int(done.exception.exit_code), str(done.exception)
    return done.exit_code, done.output


@pytest.mark.thorough
def test_plan_tells_values_contradictions_and_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(_: EngineQuestion) -> EngineAnswer:
        return EngineAnswer(True, RELEASE, "", "", "", {"stream_interval": 9, "page_size": 1})

    at_hand(monkeypatch, ScriptedJudge(answer))
    _, out = invoke("plan", "r.yaml", "--ask", "always", "--output-format", "json")
    said = json.loads(out)["engine_says"]
    assert said["accepted"] is True
    (one,) = said["contradictions"]
    assert (one["name"], one["ours"], one["engine"]) == ("stream_interval", 4, 9)
    _, out = invoke("plan", "r.yaml", "--ask", "always")
    assert "engine check: SGLang 0.5.23 accepts the command" in out
    assert "speclaunch bug, please report: stream_interval: SGLang 0.5.23 on h200" in out

    at_hand(monkeypatch, ScriptedJudge(STREAM))
    code, out = invoke("plan", "r.yaml", "--ask", "always")
    assert code == ExitCode.FAILED
    assert "error[SPL090]" in out
    assert "rejects the command (SPL090)" in out


@pytest.mark.thorough
def test_plan_without_a_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    at_hand(monkeypatch, None)
    code, said = invoke("plan", "r.yaml", "--ask", "always")
    assert code == ExitCode.USAGE
    assert "no judge for SGLang 0.5.23 is available" in said
    code, out = invoke("plan", "r.yaml", "--output-format", "json")
    assert json.loads(out)["engine_says"] is None


@pytest.mark.thorough
def test_doctor_tells_what_the_engine_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    at_hand(monkeypatch, ScriptedJudge(STREAM))
    # doctor ends with its child processes; here these are of the test process
    monkeypatch.setattr("speclaunch.app.verbs.doctor._end_what_hangs", lambda: None)
    _, out = invoke("doctor", "r.yaml", "--hardware", "h200", "--ask", "always")
    assert "SPL090" in out
    _, out = invoke("doctor", "r.yaml", "--hardware", "h200", "--ask", "never")
    assert "SPL090" not in out


def preflighted(
    recipe: Path, judge: ScriptedJudge, mode: EngineCheckMode, folder: Path | None = None
):  # type: ignore[no-untyped-def]
    prepared = prepare(load(str(recipe), [], []), dry_run=True)
    found = Lookup(hardware=declare("h200"))
    return preflight(prepared, found, all_rules(), (), asker(judge, folder, mode))


def test_a_launch_is_refused_before_it_begins(recipe: Path) -> None:
    result = preflighted(recipe, ScriptedJudge(STREAM), EngineCheckMode.AUTO)
    assert [one.code for one in result.findings if one.severity is Severity.ERROR] == ["SPL090"]
    assert result.findings[0].place.line == 6
    with pytest.raises(PreflightError, match="1 finding of error severity"):
        result.require()


def test_what_costs_too_much_is_not_asked_again(recipe: Path, tmp_path: Path) -> None:
    judge = ScriptedJudge(STREAM)
    Verdicts(tmp_path / "v").took(judge.digest, 1000)
    assert not preflighted(recipe, judge, EngineCheckMode.AUTO, tmp_path / "v").findings
    assert judge.asked == []
    assert preflighted(recipe, judge, EngineCheckMode.ALWAYS, tmp_path / "v").findings
    Verdicts(tmp_path / "v").took(judge.digest, 1000)
    asked = len(judge.asked)
    assert preflighted(recipe, judge, EngineCheckMode.AUTO, tmp_path / "v").findings, (
        "it is known, and free"
    )
    assert len(judge.asked) == asked


def test_a_dry_run_asks_where_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = ScriptedJudge(STREAM)
    at_hand(monkeypatch, judge)
    assert launch(LaunchOptions(overrides=("r.yaml",), dry_run=True)) is ExitCode.CLEAN
    assert judge.asked == []
    with pytest.raises(PreflightError):
        launch(LaunchOptions(overrides=("r.yaml",), dry_run=True, ask=EngineCheckMode.ALWAYS))
