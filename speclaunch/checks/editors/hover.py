"""Diagnostics of findings, and hover texts."""

from __future__ import annotations

import re
from pathlib import Path

from lsprotocol.types import (
    CodeDescription,
    Diagnostic,
    DiagnosticRelatedInformation,
    DiagnosticSeverity,
    DiagnosticTag,
    Hover,
    Location,
    MarkupContent,
    MarkupKind,
    Position,
    Range,
)
from pygls.uris import from_fs_path

from speclaunch.checks.editors.checking import CheckedDocument, is_same_file
from speclaunch.checks.editors.cursor import (
    CursorKind,
    DocumentPositions,
    about_key,
    flag_at,
    key_at,
    kind,
)
from speclaunch.checks.lint.report import ReportedFinding
from speclaunch.checks.rules.finding import Finding, Severity
from speclaunch.checks.rules.pages import page, page_url
from speclaunch.core import COMMAND_LINE, Place
from speclaunch.engine import Catalogue, EngineVariable, about, load, name_of

SOURCE = "speclaunch"
_SEVERITY = {
    Severity.ERROR: DiagnosticSeverity.Error,
    Severity.WARNING: DiagnosticSeverity.Warning,
    Severity.INFO: DiagnosticSeverity.Information,
}
_TAGS = {"SPL005": [DiagnosticTag.Deprecated], "SPL006": [DiagnosticTag.Unnecessary]}


def diagnostics(checked: CheckedDocument, positions: DocumentPositions) -> list[Diagnostic]:
    """Return a diagnostic per finding.

    A finding in a group's file is shown where the document selects that file, with its real place
    as related information.
    """
    return [
        _diagnostic(reported, number, checked.path, positions)
        for number, reported in enumerate(checked.found)
    ]


def _diagnostic(
    reported: ReportedFinding, number: int, path: str, positions: DocumentPositions
) -> Diagnostic:
    finding = reported.finding
    here = is_same_file(finding.place.path, path)
    where = positions.range(finding.place if here else _choice(finding.place, path, positions))
    related = [
        _related(place, positions, path, "this conflicts with it") for place in finding.others
    ]
    if not here:
        related.insert(0, _related(finding.place, positions, path, "it is written here"))
    url = finding.url
    return Diagnostic(
        range=where,
        message=message(finding),
        severity=_SEVERITY[finding.severity],
        code=finding.code,
        code_description=CodeDescription(url) if url is not None else None,
        source=SOURCE,
        tags=_TAGS.get(finding.code),
        related_information=[information for information in related if information is not None]
        or None,
        data={"number": number, "versions": list(reported.engines)},
    )


def _choice(place: Place, path: str, positions: DocumentPositions) -> Place:
    """Return the place where a document selects a group's option file, else its start."""
    file = Path(place.path)
    pattern = re.compile(
        rf"^\s*-\s*(?:override\s+)?/?(?:{re.escape(file.parent.name)}\s*:\s*)?"
        rf"(?P<option>{re.escape(file.stem)})\s*(?:#.*)?$"
    )
    for number, line in enumerate(positions.lines, 1):
        if (found := pattern.match(line)) is not None:
            return Place(path, number, found.start("option") + 1, len(file.stem))
    return Place(path)


def message(finding: Finding) -> str:
    """Return a finding's message, reason and remedy, one per line."""
    parts = [finding.message, finding.why and f"why: {finding.why}"]
    parts.append(f"help: {finding.fix.text}" if finding.fix is not None else "")
    return "\n".join(part for part in parts if part)


def _related(
    place: Place, positions: DocumentPositions, path: str, text: str
) -> DiagnosticRelatedInformation | None:
    if place.path == COMMAND_LINE:
        return None
    if is_same_file(place.path, path):
        where = positions.range(place)
    else:  # the file is not open here: its columns are close enough
        start = Position(max(place.line - 1, 0), max(place.column - 1, 0))
        where = Range(start, Position(start.line, start.character + max(place.length, 1)))
    uri = from_fs_path(str(Path(place.path).absolute()))
    return DiagnosticRelatedInformation(Location(uri, where), text) if uri else None


SLIME = "--sglang-"
"""Prefix of the engine's flags in slime's scripts."""


def hover(
    checked: CheckedDocument, text: str, positions: DocumentPositions, line: int, column: int
) -> Hover | None:
    """Return the hover text for a line and column (from 1); None if there is none."""
    parts = [_rule(reported) for reported in found_at(checked, line, column)]
    where: Range | None = None
    thing = _thing(checked, text, positions, line, column)
    if thing is not None:
        description, start, end = thing
        parts.append(description)
        where = Range(positions.position(line, start), positions.position(line, end))
    if not parts:
        return None
    return Hover(MarkupContent(MarkupKind.Markdown, "\n\n---\n\n".join(parts)), where)


def found_at(checked: CheckedDocument, line: int, column: int) -> list[ReportedFinding]:
    """Return the findings at a line and column (from 1)."""
    return [
        reported for reported in checked.found if _underlines(reported, checked.path, line, column)
    ]


def _underlines(reported: ReportedFinding, path: str, line: int, column: int) -> bool:
    place = reported.finding.place
    here = is_same_file(place.path, path) and place.line == line
    return here and place.column <= column <= place.column + max(place.length, 1)


def _rule(reported: ReportedFinding) -> str:
    finding = reported.finding
    rule_page = page(finding.code)
    what = rule_page.body.partition("## What it does\n")[2].partition("\n## ")[0].strip()
    url = page_url(finding.code)
    more = f"[{finding.code}]({url})" if url else f"`speclaunch explain {finding.code}`"
    versions = f" (SGLang {', '.join(reported.engines)})" if reported.engines else ""
    return f"**{rule_page.title}**{versions}\n\n{rule_page.summary}\n\n{what}\n\n{more}"


def _thing(
    checked: CheckedDocument, text: str, positions: DocumentPositions, line: int, column: int
) -> tuple[str, int, int] | None:
    lines = positions.lines
    catalogue = load(checked.version_at(line))
    what, base = kind(text, checked.path)
    if what is CursorKind.COMMANDS:
        flag = flag_at(lines[line - 1], column)
        if flag is None:
            return None
        name, start, end = flag
        description = argument(name.replace(SLIME, "--", 1), catalogue)
        return (description, start, end) if description else None
    key = key_at(lines, line, column, base)
    if key is None:
        return None
    above, name, start = key
    if above in (("args",), ("recovery", "minimal")):
        description = argument(name, catalogue)
    elif above == ("engine", "env"):
        description = variable(catalogue.variables.get(name), catalogue)
    else:
        description = about_key((*above, name))
    return (description, start, start + len(name)) if description else None


def argument(name: str, catalogue: Catalogue) -> str:
    """Return the description of a server argument as Markdown; empty if it is unknown."""
    found = about(name_of(name), catalogue)
    if found is None:
        return ""
    return "\n\n".join((f"**{found.requested}** (SGLang {catalogue.version})", *found.lines))


def variable(found: EngineVariable | None, catalogue: Catalogue) -> str:
    """Return the description of an engine variable as Markdown; empty if it is unknown."""
    if found is None:
        return ""
    lines = [
        f"**{found.name}** (SGLang {catalogue.version})",
        f"{found.type}; default {found.default}.",
    ]
    if not found.read:
        lines.append("Nothing in this release reads it.")
    if found.replacement:
        lines.append(f"Use {found.replacement}.")
    return "\n\n".join(lines)
