"""JSON documents: the complete report, GitLab's code quality, and reviewdog's diagnostics.

* The complete report, file by file, is a contract: docs/reference/lint.schema.json.
* https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format. GitLab shows one of
  several issues with the same fingerprint.
* https://github.com/reviewdog/reviewdog/tree/master/proto/rdf, with fixes as suggestions: columns
  count UTF-8 bytes, and paths start in the working directory, which reviewdog knows.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from speclaunch.app.output.findings_json import report_json
from speclaunch.app.output.formats.fingerprints import fingerprints
from speclaunch.app.output.formats.interface import Format, FormatInput, from_root, readable
from speclaunch.app.output.problems import complete_line
from speclaunch.checks import Finding, Severity, lines_of
from speclaunch.core import Place

if TYPE_CHECKING:
    from speclaunch.checks import FileEdits


class JsonFormat(Format):
    """Complete report: every file and version separately, with all details."""

    def text(self, source: FormatInput) -> str:
        """Return the document."""
        document = report_json(source.report)
        return readable(json.dumps(document, indent=2, ensure_ascii=False)) + "\n"


_GITLAB_SEVERITIES = {Severity.ERROR: "critical", Severity.WARNING: "minor", Severity.INFO: "info"}


class GitlabFormat(Format):
    """List of issues, errors first.

    Fingerprints are unique, because GitLab shows one issue for each.
    """

    def text(self, source: FormatInput) -> str:
        """Return the document."""
        findings = source.findings
        marks = fingerprints(findings)
        issues = [
            {
                "description": source.full(finding),
                "check_name": finding.code,
                "fingerprint": mark,
                "severity": _GITLAB_SEVERITIES[finding.severity],
                "location": {
                    "path": from_root(finding.place.path),
                    "lines": {"begin": finding.place.line, "end": finding.place.line},
                },
            }
            for finding, mark in zip(findings, marks, strict=True)
        ]
        return readable(json.dumps(issues, indent=1, ensure_ascii=False)) + "\n"


_RDJSON_SEVERITIES = {Severity.ERROR: "ERROR", Severity.WARNING: "WARNING", Severity.INFO: "INFO"}


class RdjsonFormat(Format):
    """One DiagnosticResult."""

    def text(self, source: FormatInput) -> str:
        """Return the document."""
        document = {
            "source": {"name": "speclaunch"},
            "diagnostics": [_diagnostic(source, finding) for finding in source.findings],
        }
        return readable(json.dumps(document, indent=1, ensure_ascii=False)) + "\n"


def _diagnostic(source: FormatInput, finding: Finding) -> dict[str, Any]:
    code: dict[str, Any] = {"value": finding.code}
    if finding.url is not None:
        code["url"] = finding.url
    found: dict[str, Any] = {
        "message": source.full(finding),
        "location": _location(finding.place),
        "severity": _RDJSON_SEVERITIES[finding.severity],
        "code": code,
    }
    made = source.edits_of(finding)
    if made is not None and made.path == finding.place.path:  # a suggestion names no file
        found["suggestions"] = [_suggestion(made)]
    if finding.others:
        found["related_locations"] = [
            {"message": "also here", "location": _location(place)} for place in finding.others
        ]
    return found


def _suggestion(made: FileEdits) -> dict[str, Any]:
    """Return all edits as one suggestion; several suggestions would be alternatives."""
    first, last = made.edits[0], made.edits[-1]
    lines = lines_of(made.before)
    before = sum(map(len, lines[: first.line - 1])) + first.column - 1
    behind = len(made.before) - sum(map(len, lines[: last.end_line - 1])) - last.end_column + 1

    def at(line: int, column: int) -> dict[str, int]:
        text = lines[line - 1] if line <= len(lines) else ""
        return {"line": line, "column": len(text[: column - 1].encode("utf-8", "replace")) + 1}

    return {
        "range": {
            "start": at(first.line, first.column),
            "end": at(last.end_line, last.end_column),
        },
        "text": made.after[before : len(made.after) - behind],
    }


def _location(place: Place) -> dict[str, Any]:
    return {
        "path": place.path,
        "range": _range(place.path, place.line, place.column, place.length),
    }


def _range(path: str, line: int, column: int, length: int) -> dict[str, Any]:
    text = complete_line(Place(path, line)) or ""  # for counting only, not shown

    def byte(at: int) -> int:
        before = text[: at - 1]
        return len(before.encode("utf-8", "replace")) + (at - 1 - len(before)) + 1

    start, end = byte(column), byte(column + length)
    return {"start": {"line": line, "column": start}, "end": {"line": line, "column": end}}
