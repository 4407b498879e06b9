"""Whatever stands in files, names and messages: each format is read back as what was meant."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given, settings
from junitparser import JUnitXml, TestSuite
from rich.console import Console

from speclaunch.app.output.formats import (
    FORMATS,
    FormatInput,
    format_named,
    from_root,
    one_line,
    readable,
)
from speclaunch.checks.lint.report import Report
from speclaunch.checks.rules.interface import Severity
from tests.app.output.formats.lint_schema import LintDocument
from tests.support.app.output.formats.made import (
    REPORTS,
    azure_commands,
    finding,
    github_commands,
    official,
    report,
)
from tests.support.loops import rows

FEW = settings(max_examples=20, deadline=None)


def written(name: str, told: FormatInput) -> str:
    text = format_named(name).text(told)
    text.encode()  # can be written
    assert not text or text.endswith("\n")
    return text


@pytest.mark.thorough
@FEW
@given(REPORTS)
def test_all_are_written_and_say_the_same_twice(made: Report) -> None:
    for name in FORMATS:
        if name != "text":  # file names that are no text: printed as the stream has it
            assert written(name, FormatInput(made)) == written(name, FormatInput(made))


@pytest.mark.thorough
@FEW
@given(REPORTS)
def test_concise(made: Report) -> None:
    told = FormatInput(made)
    lines = re.split("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]", written("concise", told))[:-1]
    assert len(lines) == len(told.found)
    for line, found in zip(lines, told.found, strict=True):
        one = found.finding
        assert line.startswith(f"{one_line(str(one.place))}: {one.severity}[{one.code}] ")


@pytest.mark.thorough
@FEW
@given(REPORTS)
def test_json(made: Report) -> None:
    document = json.loads(written("json", FormatInput(made)))
    LintDocument.model_validate(document, strict=True)
    assert len(document["files"]) == len(made.files)
    said = [one["message"] for file in document["files"] for one in file["findings"]]
    assert said == [readable(one.message) for file in made.files for one in file.findings]


@pytest.mark.thorough
@FEW
@given(REPORTS)
def test_github(made: Report) -> None:
    told = FormatInput(made)
    commands = [one for one in github_commands(written("github", told)) if "file" in one[1]]
    findings = told.findings
    assert [level for level, _, _ in commands] == [
        {"error": "error", "warning": "warning", "info": "notice"}[one.severity] for one in findings
    ]
    for (_, properties, message), one in zip(commands, findings, strict=True):
        assert properties["file"] == readable(from_root(one.place.path))
        assert (properties["line"], properties["col"]) == (
            str(one.place.line),
            str(one.place.column),
        )
        assert message == readable(told.full(one))


@pytest.mark.thorough
@FEW
@given(REPORTS)
def test_githubs_summary(made: Report) -> None:
    from speclaunch.app.output.formats_services import summary

    lines = summary(FormatInput(made)).split("\n")
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| Where")]
    assert len(rows) == len(FormatInput(made).findings)
    for row in rows:
        assert len(re.findall(r"\|", row)) == 4 and "<" not in row and len(row) < 3000


def test_githubs_summary_shows_backticks_and_marks_as_they_are() -> None:
    from speclaunch.app.output.formats_services import summary

    said = finding("a.sh", 1, message="`--tp` [x](y) *z* @me")
    row = summary(FormatInput(report(said))).split("\n")[-2]
    assert "| &#96;--tp&#96; \\[x\\](y) \\*z\\* \\@me |" in row


@pytest.mark.thorough
@FEW
@given(REPORTS)
def test_azure(made: Report) -> None:
    told = FormatInput(made)
    commands = azure_commands(written("azure", told))
    findings = [one for one in told.findings if one.severity is not Severity.INFO]
    assert len(commands) == len(findings)
    for (properties, message), one in zip(commands, findings, strict=True):
        assert properties["type"] == one.severity.value
        assert properties["sourcepath"] == readable(from_root(one.place.path))
        assert message == readable(told.full(one))


@pytest.mark.thorough
@FEW
@given(REPORTS)
def test_gitlab(made: Report) -> None:
    """The keys of https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format."""
    told = FormatInput(made)
    issues = json.loads(written("gitlab", told))
    assert len({one["fingerprint"] for one in issues}) == len(issues) == len(told.findings)
    for issue, one in zip(issues, told.findings, strict=True):
        assert issue["description"] == readable(told.full(one)) and issue["check_name"] == one.code
        assert issue["severity"] in ("info", "minor", "major", "critical", "blocker")
        assert issue["location"]["lines"]["begin"] == one.place.line
        assert not issue["location"]["path"].startswith("./")


@pytest.mark.thorough
@FEW
@given(REPORTS)
def test_sarif(made: Report) -> None:
    told = FormatInput(made)
    document = json.loads(written("sarif", told))
    (run,) = document["runs"]
    rules = run["tool"]["driver"]["rules"]
    for result, one in zip(run["results"], told.findings, strict=True):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == one.code
        (location,) = result["locations"]
        artifact = location["physicalLocation"]["artifactLocation"]
        path = (
            artifact["uri"].removeprefix("file://")
            if "uriBaseId" not in artifact
            else artifact["uri"]
        )
        said = os.fsencode(from_root(one.place.path)) if _encodable(one.place.path) else None
        assert said is None or unquote_to_bytes(path) == said
        assert re.fullmatch(r"[\w.~!$&'()*+,;=@%/:-]*", artifact["uri"], re.ASCII)
    official("sarif-schema-2.1.0.json", document)


def _encodable(path: str) -> bool:
    with contextlib.suppress(UnicodeEncodeError):
        os.fsencode(path)
        return True
    return False


@pytest.mark.thorough
@FEW
@given(REPORTS)
def test_junit(made: Report) -> None:
    told = FormatInput(made, strict=True)
    read = JUnitXml.fromstring(written("junit", told).encode())
    suites = [one for one in read if isinstance(one, TestSuite)]
    assert len(suites) == len(made.files)
    failed = sum(told.fails(one) for file in made.files for one in file.findings)
    assert read.failures == failed == sum(suite.failures for suite in suites)
    for suite, file in zip(suites, made.files, strict=True):
        assert suite.tests == len(list(suite)) == max(1, len(file.findings))


@pytest.mark.thorough
@FEW
@given(REPORTS)
def test_rdjson(made: Report) -> None:
    told = FormatInput(made)
    document = json.loads(written("rdjson", told))
    for diagnostic, one in zip(document["diagnostics"], told.findings, strict=True):
        assert diagnostic["message"] == readable(told.full(one))
        assert diagnostic["location"]["range"]["start"]["line"] == one.place.line
    official("DiagnosticResult.json", document)


@pytest.mark.thorough
@FEW
@given(REPORTS)
def test_text_is_what_rich_writes_to_a_pipe(made: Report) -> None:
    told = FormatInput(made)
    drawn = io.StringIO()
    console = Console(file=drawn, highlight=False, soft_wrap=True, width=400)
    try:
        format_named("text").show(told, console, lambda _: None)
    except UnicodeEncodeError:
        return
    assert drawn.getvalue() == format_named("text").text(told)


@rows("name", ["gitlab", "sarif", "junit", "rdjson", "json"])
def test_of_nothing_there_is_a_document(name: str) -> None:
    text = written(name, FormatInput(Report()))
    (JUnitXml.fromstring if name == "junit" else json.loads)(text.encode())


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name in FORMATS if name != "text"])
def test_very_long_messages(name: str) -> None:
    long = finding("a.sh", 1, message="long " * 200_000)
    assert len(written(name, FormatInput(report(long)))) > 10**6
