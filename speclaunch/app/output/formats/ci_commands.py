"""CI commands: findings as annotations of GitHub Actions, or issues of Azure Pipelines.

https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands: GitHub shows the
first 10 errors, warnings and notices of a step.
https://learn.microsoft.com/azure/devops/pipelines/scripts/logging-commands: issues are errors and
warnings only, so engine adjustments (info) are plain log lines.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from speclaunch.app.output.formats.interface import (
    Format,
    FormatInput,
    from_root,
    one_line,
    readable,
)
from speclaunch.app.output.styled import many
from speclaunch.checks import Finding, Severity
from speclaunch.core import COMMAND_LINE

SHOWN = 10
"""Annotations per level that GitHub shows for a step."""
MOST_ROWS = 200
"""Maximum findings in a job summary, which is limited to 1 MiB."""

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
_MESSAGE = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})
_CELL = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", "`": "&#96;"})
_LONGEST_CELL = 500


class GithubFormat(Format):
    """GitHub annotations, errors first; a notice states how many are hidden."""

    def text(self, source: FormatInput) -> str:
        """Return the commands, one per line."""
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
    """Return a text for a step's log in which GitHub executes no commands.

    The text quotes untrusted files.
    """
    if not text:
        return text
    token = secrets.token_hex(16)
    end = "" if text.endswith("\n") else "\n"
    return f"::stop-commands::{token}\n{text}{end}::{token}::\n"


def add_summary(source: FormatInput, environment: Mapping[str, str] = os.environ) -> None:
    """Append to the job summary if `environment` names its file. Raises OSError."""
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
        """Return the commands, one per line."""
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
