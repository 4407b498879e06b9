"""The edits that formats tell: proven, of the file, and never with a secret."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from speclaunch.app.output.formats import touched
from speclaunch.app.verbs.fixing import edits_in
from speclaunch.app.verbs.lint import lint_run
from speclaunch.app.verbs.start_options import LintOptions
from speclaunch.checks.lint.report import ReportedFinding
from speclaunch.checks.rules.interface import Fix

COMPOSE = """services:
  engine:
    image: lmsysorg/sglang:v0.5.23
    command:
      - python3
      - -m
      - sglang.launch_server
      - --model-path=m
      - --port=31000
{between}
      - --num-continuous-decode-steps=3
      - --host=127.0.0.1
"""
SECRET = "      - --api-key\n      - qK3vT9xLmW2pZr8s"


@pytest.mark.parametrize("between", [SECRET, "      - --tp-size=1"])
def test_no_secret_between_edits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, between: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("compose.yaml").write_text(COMPOSE.format(between=between))
    run = lint_run(LintOptions(paths=("compose.yaml",), no_cache=True))
    report = run.report()
    (finding,) = (one for one in report.files[0].findings if one.code == "SPL006")
    fix = Fix("set both", set={"port": 31001, "num_continuous_decode_steps": None}, safe=True)
    two = ReportedFinding(replace(finding, fix=fix), (finding.engine,), ("compose.yaml",))
    made = edits_in(run, report)(two)
    if between == SECRET:
        assert made is None
    else:
        assert made is not None and "--port=31001" in made.after
        assert "--num-continuous" not in made.after and "tp-size" in touched(made)


def test_what_recipes_share_is_fixed_in_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("compose.yaml").write_text(COMPOSE.format(between="      - --tp-size=1"))
    run = lint_run(LintOptions(paths=("compose.yaml",), no_cache=True))
    report = run.report()
    (finding,) = (one for one in report.files[0].findings if one.code == "SPL006")
    edits = edits_in(run, report)
    assert edits(ReportedFinding(finding, (finding.engine,), ("compose.yaml",))) is not None
    assert (
        edits(ReportedFinding(finding, (finding.engine,), ("compose.yaml", "other.yaml"))) is None
    )
    Path("compose.yaml").unlink()
    assert (
        edits_in(run, report)(ReportedFinding(finding, (finding.engine,), ("compose.yaml",)))
        is None
    )
