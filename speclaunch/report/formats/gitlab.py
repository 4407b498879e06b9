"""GitLab code quality: https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format."""

from __future__ import annotations

import json

from speclaunch.report.formats.fingerprints import fingerprints
from speclaunch.report.formats.interface import Format, FormatInput, from_root, readable
from speclaunch.rules.finding import Severity

_SEVERITIES = {Severity.ERROR: "critical", Severity.WARNING: "minor", Severity.INFO: "info"}


class Gitlab(Format):
    """A list, errors first. No two have one fingerprint: GitLab would show one of them."""

    def text(self, told: FormatInput) -> str:
        """The document."""
        findings = told.findings
        marks = fingerprints(findings)
        issues = [
            {
                "description": told.full(one),
                "check_name": one.code,
                "fingerprint": mark,
                "severity": _SEVERITIES[one.severity],
                "location": {
                    "path": from_root(one.place.path),
                    "lines": {"begin": one.place.line, "end": one.place.line},
                },
            }
            for one, mark in zip(findings, marks, strict=True)
        ]
        return readable(json.dumps(issues, indent=1, ensure_ascii=False)) + "\n"


FORMAT = Gitlab()
