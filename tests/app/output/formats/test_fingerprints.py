"""A fingerprint stays with its finding, and no two findings share one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from speclaunch.app.output.formats import FormatInput, format_named
from speclaunch.app.output.formats_reports import FINGERPRINT
from speclaunch.app.output.formats_services import fingerprints
from speclaunch.checks.rules.interface import Finding, Severity
from tests.support.app.output.formats.made import finding, report

TEXT = """python3 -m sglang.launch_server --model-path m \\
  --speculative-eagle-topk 4 --page-size 16
python3 -m sglang.launch_server --model-path m \\
  --speculative-eagle-topk 4 --page-size 16
"""


def found(file: Path, above: int = 0) -> list[Finding]:
    return [
        finding(file, above + 2, 3, 24),
        finding(file, above + 2, 30, 11),  # in the same line
        finding(file, above + 4, 3, 24),  # in an equal line
        finding(file, above + 4, 3, 24, code="SPL301"),
        finding("nowhere.sh", above + 4),
    ]


@pytest.mark.parametrize("above", ["\n", "# a comment\n\n\n", "export X=1\n"])
def test_they_survive_lines_above(tmp_path: Path, above: str) -> None:
    file = tmp_path / "a.sh"
    file.write_text(TEXT)
    before = fingerprints(found(file))
    file.write_text(above + TEXT)
    assert fingerprints(found(file, above.count("\n"))) == before
    assert len(set(before)) == len(before)


def test_another_file_rule_and_message_are_others(tmp_path: Path) -> None:
    ones = [finding("a.sh", 2), finding("b.sh", 2), finding("a.sh", 2, code="SPL301")]
    ones.append(finding("a.sh", 2, message="it fails otherwise"))
    assert len(set(fingerprints(ones))) == 4


def test_what_agrees_in_all_has_its_own_for_gitlab() -> None:
    """An error of one version that is a warning of another: lint tells both, at one place."""
    severities = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    ones = [finding("a.sh", 2, severity=severity) for severity in severities]
    assert len(set(fingerprints(ones))) == 3


def test_the_order_of_equal_findings_is_that_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.sh"
    file.write_text(TEXT)
    ones = found(file)
    assert fingerprints(ones[::-1]) == fingerprints(ones)[::-1]


def test_a_path_is_the_same_however_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.sh").write_text(TEXT)
    marks = set()
    for folder, path in (
        (tmp_path, "sub/a.sh"),
        (tmp_path, "./sub/../sub/a.sh"),
        (tmp_path / "sub", "a.sh"),
        (tmp_path / "sub", str(tmp_path / "sub" / "a.sh")),
    ):
        monkeypatch.chdir(folder)
        marks.update(fingerprints([finding(path, 2, 3, 24)]))
    assert len(marks) == 1


def test_both_formats_have_them(tmp_path: Path) -> None:
    file = tmp_path / "a.sh"
    file.write_text(TEXT)
    told = FormatInput(report(*found(file)))
    marks = set(fingerprints(told.findings))
    (run,) = json.loads(format_named("sarif").text(told))["runs"]
    assert {one["partialFingerprints"][FINGERPRINT] for one in run["results"]} == marks
    assert {one["fingerprint"] for one in json.loads(format_named("gitlab").text(told))} == marks
