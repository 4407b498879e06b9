"""SPL090: at the place of the arguments that are refused, and only where no error explains it."""

from __future__ import annotations

from pathlib import Path

import pytest

from speclaunch.app.verbs.lint import lint as verb
from speclaunch.app.verbs.start_options import LintOptions
from speclaunch.checks.engine_check import installed_judges
from speclaunch.checks.engine_check.installed_judges import AddedJudge
from speclaunch.checks.lint.engine_findings import engine_findings
from speclaunch.checks.rules.examine import check_plan
from speclaunch.checks.rules.interface import Finding, Severity
from speclaunch.checks.rules.registry import all_rules
from speclaunch.core.errors import ExitCode
from speclaunch.engine.facts.project_settings import EngineCheckMode
from tests.checks.engine_check.scripted_judge import (
    MODEL,
    RELEASE,
    ScriptedJudge,
    asker,
    at_hand,
    plan_of,
    refuses,
)

SCRIPT = f"""# serves
python3 -m sglang.launch_server \\
  --model-path {MODEL} --tp-size 2 \\
  --schedule-conservativeness 0.3 --stream-interval 4
"""
PAIR = refuses("--schedule-conservativeness", "--stream-interval")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("SPECLAUNCH_NO_CACHE", raising=False)
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


def added(on: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `engine judge add` leaves it."""
    (on / "judges" / RELEASE).mkdir(parents=True)
    kept = [AddedJudge(RELEASE, RELEASE, "python3", "PyPI", "digest", 1)]
    monkeypatch.setattr(installed_judges, "added_judges", lambda: kept)


def said(*words: str, judge: ScriptedJudge) -> list[Finding]:
    plan = plan_of(*words)
    found = check_plan(plan, all_rules()).results
    opinion = asker(judge).opinion(plan, blamed=found.blamed)
    assert opinion is not None
    return list(engine_findings(opinion, plan, found.findings).findings)


def test_the_engines_own_words_file_and_line() -> None:
    words = ("--schedule-conservativeness", "0.3", "--stream-interval", "4")
    (finding,) = said(*words, judge=ScriptedJudge(PAIR))
    assert finding.severity is Severity.ERROR
    assert finding.message == "SGLang 0.5.23 refuses this: these do not go together"
    assert finding.why == (
        "ValueError at srt/server_args.py:42 on h200:8, `assert not both`; only the "
        "combination of --schedule-conservativeness and --stream-interval is refused; exact: engine check of SGLang 0.5.23"
    )
    assert finding.fix is not None
    assert finding.fix.text == "change or remove --schedule-conservativeness or --stream-interval"


def test_what_an_error_of_ours_explains_is_not_told_again() -> None:
    words = ("--disable-radix-cache", "--enable-hierarchical-cache")
    judge = ScriptedJudge(refuses("--disable-radix-cache", "--enable-hierarchical-cache"))
    assert said(*words, judge=judge) == []
    assert len(judge.asked) == 2, "as it is, and without what we blame"
    elsewhere = ScriptedJudge(refuses("--stream-interval"))
    assert len(said(*words, "--stream-interval", "4", judge=elsewhere)) == 1


def test_no_secret_is_told() -> None:
    judge = ScriptedJudge(refuses("--stream-interval", why="it is sk-4711ffe8 that is wrong"))
    (finding,) = said("--api-key", "sk-4711ffe8", "--stream-interval", "4", judge=judge)
    assert "sk-4711" not in repr(finding)


def test_a_word_that_only_we_refuse_is_our_defect() -> None:
    (finding,) = said("--schedule-policy", "newest", judge=ScriptedJudge())
    assert finding.severity is Severity.INFO
    assert finding.message == (
        "SGLang 0.5.23 accepts this, but SPL003 rejects it: a bug in speclaunch"
    )
    assert finding.fix is not None
    assert "report the bug: SPL003, SGLang 0.5.23: " in finding.fix.text


def test_an_error_about_a_later_failure_is_not_contradicted() -> None:
    words = ("--disable-radix-cache", "--enable-hierarchical-cache")
    assert said(*words, judge=ScriptedJudge()) == []


def lint(capsys: pytest.CaptureFixture[str], *paths: str, **more) -> tuple[ExitCode, str]:  # type: ignore[no-untyped-def]
    code = verb(LintOptions(paths=paths, **{"engine": "0.5.23", **more}))
    return code, capsys.readouterr().out


def test_lint_tells_line_and_column(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_hand(monkeypatch, ScriptedJudge(PAIR))
    Path("a.sh").write_text(SCRIPT)
    code, out = lint(capsys, "a.sh", ask=EngineCheckMode.ALWAYS)
    assert code is ExitCode.FAILED
    assert "error[SPL090]: SGLang 0.5.23 refuses this" in out
    assert "--> a.sh:4:3" in out
    Path("a.sh").write_text(SCRIPT.replace("# serves", "# speclaunch: ignore[SPL090] we know"))
    assert "SPL090" not in lint(capsys, "a.sh", ask=EngineCheckMode.ALWAYS)[1]


def test_a_recipe_has_its_own_place(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_hand(monkeypatch, ScriptedJudge(PAIR))
    Path("r.yaml").write_text(
        'name: r\nengine: {version: "0.5.23"}\nargs:\n'
        f"  model_path: {MODEL}\n  stream_interval: 4\n  schedule_conservativeness: 0.3\n"
    )
    _, out = lint(capsys, "r.yaml", ask=EngineCheckMode.ALWAYS, engine=None)
    assert "--> r.yaml:5:" in out
    assert "change or remove stream_interval or schedule_conservativeness" in out


def test_where_no_version_is_named_it_is_a_warning(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_hand(monkeypatch, ScriptedJudge(PAIR))
    monkeypatch.setenv("PATH", "/nonexistent")
    Path("a.sh").write_text(SCRIPT)
    code, out = lint(capsys, "a.sh", ask=EngineCheckMode.ALWAYS, engine=None)
    assert code is ExitCode.CLEAN
    assert "warning[SPL090]" in out


def test_auto_asks_added_judges_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    judge = ScriptedJudge(PAIR)
    at_hand(monkeypatch, judge)
    Path("a.sh").write_text(SCRIPT)
    assert "SPL090" not in lint(capsys, "a.sh")[1]
    assert judge.asked == []
    added(home, monkeypatch)
    assert "SPL090" in lint(capsys, "a.sh")[1], "what was linted without a judge is not told again"
    asked = len(judge.asked)
    assert "SPL090" in lint(capsys, "a.sh")[1]
    assert len(judge.asked) == asked, "a verdict is asked for once"
    assert "SPL090" in lint(capsys, "a.sh", no_cache=True)[1]
    assert len(judge.asked) > asked
    for more in ({"ask": EngineCheckMode.NEVER}, {"ignore": ("SPL090",)}, {"select": ("SPL3",)}):
        asked = len(judge.asked)
        assert "SPL090" not in lint(capsys, "a.sh", **more)[1]
        assert len(judge.asked) == asked


def test_what_was_not_asked_is_told_with_its_reason(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_hand(monkeypatch, ScriptedJudge(PAIR))
    Path("a.sh").write_text(SCRIPT.replace(MODEL, "nobody/nothing"))
    _, out = lint(capsys, "a.sh", ask=EngineCheckMode.ALWAYS)
    assert "1 rule skipped: the config.json of nobody/nothing is not available" in out


def test_a_config_in_doubt_makes_it_a_warning() -> None:
    draft = "jamesliu1/sglang-EAGLE3-Llama-3.1-Instruct-8B"
    words = ("--speculative-draft-model-path", draft, "--stream-interval", "4")
    (finding,) = said(*words, judge=ScriptedJudge(refuses("--stream-interval")))
    assert finding.severity is Severity.WARNING
    assert f"the config.json of {draft} is in doubt" in finding.why
    assert "exact" not in finding.why
