"""Formats of `lint` for services: JSON documents, and commands that a CI service executes.

* json: the complete report by file. Its schema, docs/reference/lint.schema.json, is a contract.
* gitlab: https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format. GitLab shows
  one of several issues with the same fingerprint.
* rdjson: https://github.com/reviewdog/reviewdog/tree/master/proto/rdf. Fixes are suggestions.
  Columns count UTF-8 bytes, and paths are relative to the working directory.
* github: https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands. GitHub
  shows the first 10 errors, 10 warnings and 10 notices of a step as annotations.
* azure: https://learn.microsoft.com/azure/devops/pipelines/scripts/logging-commands. Issues can
  only be errors or warnings, so engine adjustments (info) are plain log lines.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speclaunch.app.output.console import many
from speclaunch.app.output.formats import (
    Format,
    FormatInput,
    from_root,
    one_line,
    readable,
    repository_root,
)
from speclaunch.app.output.problems import complete_line
from speclaunch.checks import FileReport, Finding, KnownCheckpoint, Report, Severity, lines_of
from speclaunch.checks import fingerprints as stable_fingerprints
from speclaunch.checks import fingerprints_by_message as stable_fingerprints_by_message
from speclaunch.core import COMMAND_LINE, Place

if TYPE_CHECKING:
    from speclaunch.checks import FileEdits
    from speclaunch.engine import Checkpoint


VERSION = 1


def report_json(report: Report) -> dict[str, Any]:
    """Return a report as JSON, as specified by docs/reference/lint.schema.json."""
    return {
        "version": VERSION,
        "files": [_file(file) for file in report.files],
        "not_read": list(report.not_read),
        "baseline": {
            "known": report.known,
            "gone": [
                {"code": known.code, "path": known.path, "message": known.message}
                for known in report.gone
            ],
        },
        "summary": {
            "deployments": report.deployments,
            **{f"{severity}s": report.count(severity) for severity in Severity},
        },
    }


def _file(file: FileReport) -> dict[str, Any]:
    return {
        "path": file.path,
        "engine": file.engine,
        "findings": [
            {**finding_json(finding), "others": [_place(other) for other in finding.others]}
            for finding in file.findings
        ],
        "unjudged": [
            {"code": rule.code, "rule": rule.rule, "reason": rule.reason}
            for rule in file.skipped_rules
        ],
        "checkpoints": [checkpoint_json(checkpoint) for checkpoint in file.checkpoints],
        "unknown": [
            {"what": fact.what, "why": fact.why, "fix": fact.help} for fact in file.unknown
        ],
        "skipped": file.skipped,
        "note": file.note,
    }


def _place(place: Place) -> dict[str, Any]:
    return {"path": place.path, "line": place.line, "column": place.column}


def checkpoint_json(checkpoint: Checkpoint | KnownCheckpoint) -> dict[str, Any]:
    """Return a checkpoint as JSON: the source of its facts, and the facts that no source has."""
    origin = checkpoint.origin
    return {
        "name": checkpoint.name,
        "provenance": origin.provenance.value if origin is not None else None,
        "where": origin.where if origin is not None else None,
        "read": origin.read if origin is not None else None,
        "revision": origin.revision if origin is not None else None,
        "doubt": origin.doubt if origin is not None else None,
        "assumed": origin.assumed if origin is not None else None,
        "unread": sorted(checkpoint.unread),
    }


def finding_json(finding: Finding) -> dict[str, Any]:
    """Return one finding as JSON."""
    place = finding.place
    on_command_line = place.path == COMMAND_LINE
    return {
        "code": finding.code,
        "rule": finding.rule,
        "severity": finding.severity.value,
        "message": finding.message,
        "why": finding.why,
        "fix": finding.fix.text if finding.fix is not None else None,
        "applicability": _applicability(finding),
        "path": place.path,
        "line": None if on_command_line else place.line,
        "column": None if on_command_line else place.column,
        "source": finding.source,
        "url": finding.url,
    }


def _applicability(finding: Finding) -> str | None:
    """Return `safe` (`lint --fix`), `unsafe` (`--unsafe-fixes`), or None for a manual fix."""
    kind = finding.fix.applicability if finding.fix is not None else None
    return kind.value if kind is not None else None


def fingerprints(findings: Sequence[Finding]) -> list[str]:
    """Return a unique fingerprint per finding, with paths relative to the repository root.

    If findings have the same code, message and place, all but the first get a different
    fingerprint, because GitLab shows only one finding per fingerprint.
    """
    return _unique(findings, stable_fingerprints)


def fingerprints_by_message(findings: Sequence[Finding]) -> list[str]:
    """Return fingerprints of code, path and message, as in earlier speclaunch releases."""
    return _unique(findings, stable_fingerprints_by_message)


def _unique(
    findings: Sequence[Finding], of: Callable[[Sequence[Finding], str], list[str]]
) -> list[str]:
    root = repository_root(os.getcwd())  # noqa: PTH109
    counts: Counter[str] = Counter()
    marks = []
    for mark in of(findings, root):
        number, counts[mark] = counts[mark], counts[mark] + 1
        own = mark if not number else hashlib.sha256(f"{mark}\0{number}".encode()).hexdigest()[:32]
        marks.append(own)
    return marks


class JsonFormat(Format):
    """Complete report, with a separate entry for each file and version."""

    def text(self, source: FormatInput) -> str:
        document = report_json(source.report)
        return readable(json.dumps(document, indent=2, ensure_ascii=False)) + "\n"


_GITLAB_SEVERITIES = {Severity.ERROR: "critical", Severity.WARNING: "minor", Severity.INFO: "info"}


class GitlabFormat(Format):
    """List of GitLab issues, errors first."""

    def text(self, source: FormatInput) -> str:
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
    """DiagnosticResult document for reviewdog."""

    def text(self, source: FormatInput) -> str:
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
        "location": _rd_location(finding.place),
        "severity": _RDJSON_SEVERITIES[finding.severity],
        "code": code,
    }
    made = source.edits_of(finding)
    if made is not None and made.path == finding.place.path:  # a suggestion names no file
        found["suggestions"] = [_suggestion(made)]
    if finding.others:
        found["related_locations"] = [
            {"message": "also here", "location": _rd_location(place)} for place in finding.others
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


def _rd_location(place: Place) -> dict[str, Any]:
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


SHOWN = 10
"""Maximum number of annotations per level that GitHub shows for a step."""
MOST_ROWS = 200
"""Maximum number of findings in a job summary, which is limited to 1 MiB."""

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
_MESSAGE = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})
_CELL = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", "`": "&#96;"})
_LONGEST_CELL = 500


class GithubFormat(Format):
    """GitHub annotations, errors first; a notice states the counts if some are hidden."""

    def text(self, source: FormatInput) -> str:
        findings = source.findings
        lines = [_workflow_command(source, finding) for finding in findings]
        counts = Counter(finding.severity for finding in findings)
        if max(counts.values(), default=0) > SHOWN:
            notice_text = (
                f"{counted(source)}; GitHub shows the first {SHOWN} of each level; the log has all"
            )
            notice = f"::notice title=speclaunch::{notice_text.translate(_MESSAGE)}"
            lines.insert(counts[Severity.ERROR] + counts[Severity.WARNING], notice)
        return "".join(f"{line}\n" for line in lines)


def _workflow_command(source: FormatInput, finding: Finding) -> str:
    place = finding.place
    properties = {"file": from_root(place.path), "line": str(place.line), "col": str(place.column)}
    properties["endColumn"] = str(place.column + max(1, place.length))
    if place.path == COMMAND_LINE:
        properties = {}
    properties["title"] = f"{finding.code} {finding.rule}"
    arguments = ",".join(
        f"{name}={readable(value).translate(_PROPERTY)}" for name, value in properties.items()
    )
    message = readable(source.full(finding)).translate(_MESSAGE)
    return f"::{_LEVELS[finding.severity]} {arguments}::{message}"


def without_commands(text: str) -> str:
    """Return log text wrapped so that GitHub ignores commands in quoted untrusted files."""
    if not text:
        return text
    token = os.urandom(16).hex()
    end = "" if text.endswith("\n") else "\n"
    return f"::stop-commands::{token}\n{text}{end}::{token}::\n"


def add_summary(source: FormatInput, environment: Mapping[str, str] = os.environ) -> None:
    """Append the findings to the job summary if `environment` names its file. Raises OSError."""
    file = environment.get("GITHUB_STEP_SUMMARY")
    if file:
        with Path(file).open("a", encoding="utf-8") as opened:
            opened.write(summary(source))


def summary(source: FormatInput) -> str:
    """Return the findings as a Markdown table, errors first."""
    findings = source.findings
    lines = [f"### speclaunch: {counted(source)}", ""]
    if findings:
        lines += ["| Where | Rule | What |", "|---|---|---|"]
    for finding in findings[:MOST_ROWS]:
        where = f"{from_root(finding.place.path)}:{finding.place.line}:{finding.place.column}"
        code = finding.code if finding.url is None else f"[{finding.code}]({finding.url})"
        what = (
            source.message(finding)
            if finding.fix is None
            else f"{source.message(finding)}: {finding.fix.text}"
        )
        lines.append(f"| {_cell(where)} | {finding.severity} {code} | {_cell(what)} |")
    if len(findings) > MOST_ROWS:
        lines += ["", f"{len(findings) - MOST_ROWS} more are in the log."]
    return "\n".join((*lines, ""))


def _cell(text: str) -> str:
    shown = one_line(text)
    if len(shown) > _LONGEST_CELL:
        shown = f"{shown[: _LONGEST_CELL - 1]}…"
    # escape the rest of Markdown: links, emphasis, mentions
    escaped = "".join(
        f"\\{character}" if character in "\\[]*_~@#" else character for character in shown
    )
    return escaped.translate(_CELL)


def counted(source: FormatInput) -> str:
    """Return the counts as text: `2 errors, 1 warning in 3 deployments`."""
    counts = Counter(finding.severity for finding in source.findings)
    words = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
    parts = [many(counts[severity], word) for severity, word in words.items() if counts[severity]]
    return f"{', '.join(parts) or 'no findings'} in {many(source.report.deployments, 'deployment')}"


_AZURE_MESSAGE = str.maketrans({"%": "%AZP25", "\r": "%0D", "\n": "%0A"})
_AZURE_PROPERTY = str.maketrans({"%": "%AZP25", "\r": "%0D", "\n": "%0A", ";": "%3B", "]": "%5D"})


class AzureFormat(Format):
    """Azure Pipelines issues, errors first."""

    def text(self, source: FormatInput) -> str:
        return "".join(f"{_logging_command(source, finding)}\n" for finding in source.findings)


def _logging_command(source: FormatInput, finding: Finding) -> str:
    place = finding.place
    if finding.severity is Severity.INFO:
        # `##[` and `##vso[` begin a command anywhere in a line
        text = one_line(f"{place}: {finding.severity}[{finding.code}] {source.message(finding)}")
        return text.replace("##", "# #")
    properties = {
        "type": finding.severity.value,
        "sourcepath": from_root(place.path),
        "linenumber": str(place.line),
        "columnnumber": str(place.column),
        "code": finding.code,
    }
    text = "".join(
        f"{name}={readable(value).translate(_AZURE_PROPERTY)};"
        for name, value in properties.items()
    )
    message = readable(source.full(finding)).translate(_AZURE_MESSAGE)
    return f"##vso[task.logissue {text}]{message}"
