"""What each format is for, as its service takes it."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from speclaunch.app.output import formats_services
from speclaunch.app.output.formats import FORMATS, FormatInput, format_named
from speclaunch.app.verbs.options import LintFormat
from speclaunch.checks.edit.edits import FileEdits, text_edits_between
from speclaunch.checks.lint.report import FileReport, Report
from speclaunch.checks.rules.interface import Fix, Severity
from speclaunch.core.errors import Place
from speclaunch.core.resources import DOCS_URL_VARIABLE
from tests.app.output.formats.lint_schema import FILE, LintDocument, published
from tests.support.app.output.formats.made import finding, github_commands, official, report


def test_each_format_has_its_module() -> None:
    assert list(FORMATS) == [one.value for one in LintFormat]
    assert [name for name in FORMATS if format_named(name).exits_zero] == ["sarif"]


def test_the_schema_is_that_of_the_documentation() -> None:
    """Where this fails on purpose: python -m tests.app.output.formats.lint_schema writes it."""
    assert json.loads(FILE.read_text()) == published()


def test_a_real_report_has_the_schema(tmp_path: Path) -> None:
    made = report(finding("a.sh", 1, others=(Place("a.sh", 2),)))
    read = json.loads(format_named("json").text(FormatInput(made)))
    jsonschema.validate(read, json.loads(FILE.read_text()))
    LintDocument.model_validate(read, strict=True)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**read, "version": 2}, json.loads(FILE.read_text()))


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("", None),
        ("docs/", None),
        ("javascript:x", None),
        ("https://x.example/a b", None),
        ("https://x.example/docs", "https://x.example/docs/rules/SPL211/"),
        ("https://x.example/", "https://x.example/rules/SPL211/"),
    ],
)
def test_url_is_a_url_or_nothing(
    base: str, url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DOCS_URL_VARIABLE, base)
    told = FormatInput(report(finding("a.sh", 1)))
    (file,) = json.loads(format_named("json").text(told))["files"]
    assert file["findings"][0]["url"] == url
    (one,) = json.loads(format_named("rdjson").text(told))["diagnostics"]
    assert one["code"].get("url") == url


def test_a_finding_of_many_files_is_told_once() -> None:
    group = finding("conf/group.yaml", 3)
    files = [FileReport(f"{at}.yaml", "0.5.23", (group,), deployments=1) for at in range(445)]
    told = FormatInput(Report(tuple(files)))
    text = format_named("text").text(told)
    assert text.count("SPL211") == 1 and "\n  through: 0.yaml and 444 more\n" in text
    assert text.endswith("\n1 error in 445 deployments (SGLang 0.5.23)\n")
    for name, count in (("concise", 1), ("github", 1), ("azure", 1), ("json", 445)):
        assert format_named(name).text(told).count("SPL211") == count, name


def test_both_places_are_shown(tmp_path: Path) -> None:
    file = tmp_path / "a.sh"
    file.write_text("serve --topk 4 --page-size 16 \\\n  --algorithm X\n")
    others = (Place(str(file), 1, 7, 6), Place(str(file), 2, 3, 11))
    text = format_named("text").text(FormatInput(report(finding(file, 1, 16, 11, others=others))))
    assert "      ------   ^^^^^^^^^^^\n" in text
    assert f"  and {file}:2:3\n" in text and "  -----------\n" in text
    quiet = finding(file, 1, 16, 11, Severity.INFO, others=others)
    assert "and" not in format_named("text").text(FormatInput(report(quiet)))


def test_a_secret_beside_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("host: 0.0.0.0\nadmin_api_key: very-secret-value\n")
    others = (Place(str(file), 2, 16, 17, hidden=True),)
    told = FormatInput(report(finding(file, 1, 1, 4, others=others)))
    for name in FORMATS:
        assert "very-secret" not in format_named(name).text(told), name


class TestGithub:
    def test_errors_are_first_and_what_is_not_shown_is_told(self) -> None:
        made = [finding("a.sh", at, severity=Severity.INFO) for at in range(1, 4)]
        made += [finding("a.sh", at) for at in range(10, 25)]
        made += [finding("a.sh", 30, severity=Severity.WARNING)]
        levels = [
            level
            for level, *_ in github_commands(
                format_named("github").text(FormatInput(report(*made)))
            )
        ]
        assert levels == ["error"] * 15 + ["warning"] + ["notice"] * 4
        notice = format_named("github").text(FormatInput(report(*made))).splitlines()[16]
        assert notice.startswith("::notice title=speclaunch::15 errors, 1 warning, 3 notes")

    def test_few_need_no_notice(self) -> None:
        made = [finding("a.sh", at) for at in range(1, 11)]
        assert format_named("github").text(FormatInput(report(*made))).count("\n") == 10

    def test_a_text_obeys_nothing(self) -> None:
        first, *between, last = formats_services.without_commands("x\n::error::y").splitlines()
        token = first.removeprefix("::stop-commands::")
        assert between == ["x", "::error::y"] and last == f"::{token}::" and len(token) == 32
        assert formats_services.without_commands("x") != formats_services.without_commands("x")

    @pytest.mark.thorough
    def test_the_summary_is_short(self) -> None:
        made = [finding("a.sh", at, message="m" * 5000) for at in range(1, 5000)]
        told = formats_services.summary(FormatInput(report(*made)))
        assert len(told.encode()) < 1 << 20 and "4799 more are in the log." in told


def test_strict_makes_warnings_fail_in_junit() -> None:
    made = report(finding("a.sh", 1, severity=Severity.WARNING))
    assert "<failure" not in format_named("junit").text(FormatInput(made))
    assert "<failure" in format_named("junit").text(FormatInput(made, strict=True))


def test_rdjson_counts_bytes_and_suggests(tmp_path: Path) -> None:
    file = tmp_path / "a.sh"
    before, after = "# 漢字 topk 4\n# ü\n4 x\n", "# 漢字 topk 1\n# ü\n1 x\n"
    file.write_text(before)
    one = finding(file, 1, 6, 4, fix=Fix("set it to 1"))
    made = edits(str(file), before, after)
    document = json.loads(
        format_named("rdjson").text(FormatInput(report(one), edits=lambda _: made))
    )
    (diagnostic,) = document["diagnostics"]
    assert diagnostic["location"]["range"] == {
        "start": {"line": 1, "column": 10},
        "end": {"line": 1, "column": 14},
    }
    (suggestion,) = diagnostic["suggestions"]
    assert suggestion == {
        "range": {"start": {"line": 1, "column": 15}, "end": {"line": 3, "column": 2}},
        "text": "1\n# ü\n1",
    }


def test_edits_beside_a_secret_are_not_told() -> None:
    before = "serve --topk 4 \\\n  --api-key sk-very-secret-value --page-size 16\n"
    after = before.replace("topk 4", "topk 1").replace("16", "1")
    one = finding("a.sh", 1, fix=Fix("do it"))
    told = FormatInput(report(one), edits=lambda _: edits("a.sh", before, after))
    for name in ("rdjson", "sarif"):
        text = format_named(name).text(told)
        assert "suggestions" not in text and "fixes" not in text and "sk-very" not in text


def edits(path: str, before: str, after: str) -> FileEdits:
    return FileEdits(path, text_edits_between(before, after), True, before, after)


def test_the_schema_of_reviewdog() -> None:
    one = finding("a.sh", 1, others=(Place("b.sh", 2),), fix=Fix("do it"))
    told = FormatInput(report(one), edits=lambda _: edits("a.sh", "a\n", "x\n"))
    official("DiagnosticResult.json", json.loads(format_named("rdjson").text(told)))
