"""Findings as JSON: a stable contract for scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from speclaunch.checks import FileReport, Finding, KnownCheckpoint, Report, Severity
from speclaunch.core import COMMAND_LINE, Place

if TYPE_CHECKING:
    from speclaunch.engine import Checkpoint

VERSION = 1


def report_json(report: Report) -> dict[str, Any]:
    """Return `{"version": 1, "files": […], "summary": {…}}`: docs/reference/lint.schema.json."""
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
    """Return a checkpoint with the source of its facts and the facts that no source has."""
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
