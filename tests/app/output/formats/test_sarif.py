"""SARIF 2.1.0: the models of others take it, and nothing in it is unknown to them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from sarif_pydantic import Sarif

from speclaunch.app.output import formats_reports
from speclaunch.app.output.formats import FormatInput
from speclaunch.app.output.formats_reports import MOST_DESCRIBED, rule_help
from speclaunch.checks.edit.edits import FileEdits, text_edits_between
from speclaunch.checks.lint.report import ReportedFinding
from speclaunch.checks.rules.interface import Fix, Severity
from speclaunch.checks.rules.table import RULES
from speclaunch.core.errors import Place
from speclaunch.core.resources import DOCS_URL_VARIABLE
from tests.support.app.output.formats.made import finding, official, report

NOT_MODELLED = {"$schema", "columnKind"}
"""Of the standard, and not of the models."""


def document(told: FormatInput) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(formats_reports.SarifFormat().text(told))
    return found


def unknown(model: Any, way: str = "") -> Iterator[str]:
    """Keys that the models of others do not have."""
    if isinstance(model, list):
        for one in model:
            yield from unknown(one, f"{way}[]")
    elif isinstance(model, BaseModel):
        yield from (f"{way}.{name}" for name in model.model_extra or {})
        for name in type(model).model_fields:
            yield from unknown(getattr(model, name), f"{way}.{name}")


def edits(one: ReportedFinding) -> FileEdits | None:
    finding = one.finding
    if finding.fix is None:
        return None
    before = Path(finding.place.path).read_text()
    after = before.replace("page_size: 16", "page_size: 1")
    changes = text_edits_between(before, after)
    return FileEdits(finding.place.path, changes, True, before, after)


def several(tmp_path: Path) -> FormatInput:
    file = tmp_path / "a b" / "ü.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text("args:\n  page_size: 16\n  tp: 2\n")
    return FormatInput(
        report(
            finding(file, 3, 3, 2, Severity.INFO, code="SPL903"),
            finding(
                file, 2, 3, 9, fix=Fix("set page_size to 1"), others=(Place(str(file), 3, 3, 2),)
            ),
            finding("/elsewhere/x.sh", 1, severity=Severity.WARNING, code="SPL000"),
        ),
        edits=edits,
    )


def test_it_is_as_others_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    read = document(several(tmp_path))
    model = Sarif.model_validate(read)
    assert {one.rpartition(".")[2] for one in unknown(model)} <= NOT_MODELLED
    (run,) = read["runs"]
    first, second, third = run["results"]
    assert [one["level"] for one in run["results"]] == ["error", "warning", "note"]
    assert first["locations"] == [
        {
            "physicalLocation": {
                "artifactLocation": {"uri": "a%20b/%C3%BC.yaml", "uriBaseId": "%SRCROOT%"},
                "region": {"startLine": 2, "startColumn": 3, "endColumn": 12},
            }
        }
    ]
    (related,) = first["relatedLocations"]
    assert related["physicalLocation"]["region"]["startLine"] == 3
    (fix,) = first["fixes"]
    (change,) = fix["artifactChanges"]
    assert (
        change["artifactLocation"] == first["locations"][0]["physicalLocation"]["artifactLocation"]
    )
    (replaced,) = change["replacements"]
    region = {"startLine": 2, "startColumn": 15, "endLine": 2, "endColumn": 16}
    assert replaced == {"deletedRegion": region, "insertedContent": {"text": ""}}
    elsewhere = second["locations"][0]["physicalLocation"]["artifactLocation"]
    assert elsewhere == {"uri": "file:///elsewhere/x.sh"} and "fixes" not in third
    assert run["columnKind"] == "unicodeCodePoints"


def test_the_official_schema(tmp_path: Path) -> None:
    official("sarif-schema-2.1.0.json", document(several(tmp_path)))


@pytest.mark.thorough
@pytest.mark.parametrize("base", [None, "https://docs.example.com/x"])
def test_every_rule_has_help_that_stands_alone(
    base: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(DOCS_URL_VARIABLE, raising=False)
    if base:
        monkeypatch.setenv(DOCS_URL_VARIABLE, base)
    codes = [(rule.code, rule.name) for rule in RULES]
    made = [finding("a.sh", at, code=code) for at, (code, _) in enumerate(codes, 1)]
    rules = document(FormatInput(report(*made)))["runs"][0]["tool"]["driver"]["rules"]
    assert [one["id"] for one in rules] == sorted(code for code, _ in codes)
    for one in rules:
        assert 10 < len(one["fullDescription"]["text"]) <= MOST_DESCRIBED
        assert one["help"]["text"] and "## Sources" in one["help"]["markdown"]
        assert ".md)" not in one["help"]["markdown"] and "](" not in one["help"]["text"]
        assert 1 <= len(one["properties"]["tags"]) <= formats_reports.MOST_TAGS
        url = None if base is None else f"{base}/rules/{one['id']}/"
        assert one.get("helpUri") == url


def test_links_between_pages_lead_to_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    linked = next(code for code in (rule.code for rule in RULES) if "](SPL" in _page(code))
    monkeypatch.setenv(DOCS_URL_VARIABLE, "https://docs.example.com")
    assert "](https://docs.example.com/rules/SPL" in rule_help(linked, "x", Severity.ERROR).markdown


def _page(code: str) -> str:
    from speclaunch.checks.rules.interface import page

    return page(code).body


def test_at_most_what_github_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats_reports, "MOST_RESULTS", 20)
    made = [finding("a.sh", at, severity=Severity.INFO, code="SPL903") for at in range(1, 26)]
    made += [finding("b.sh", at) for at in range(1, 6)]
    (run,) = document(FormatInput(report(*made)))["runs"]
    assert len(run["results"]) == 20
    assert [one["ruleId"] for one in run["results"][:6]] == ["SPL211"] * 5 + ["SPL903"]
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    assert note["message"]["text"].startswith("10 of 30 findings are omitted")


@pytest.mark.thorough
def test_at_most_as_large_as_github_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats_reports, "MOST_BYTES", 8_000)
    made = [finding(f"{at}.sh", at, message=f"{at * 7919}") for at in range(1, 500)]
    text = formats_reports.SarifFormat().text(FormatInput(report(*made)))
    (run,) = json.loads(text)["runs"]
    import gzip

    assert 10 < len(run["results"]) < 400 and len(gzip.compress(text.encode())) <= 8_000
    assert run["invocations"][0]["toolExecutionNotifications"]


def test_nothing_in_a_message_is_a_link() -> None:
    (run,) = document(FormatInput(report(finding("a.sh", 1, message="[x](http://a.invalid)"))))[
        "runs"
    ]
    assert run["results"][0]["message"]["text"].startswith("\\[x\\](http")
