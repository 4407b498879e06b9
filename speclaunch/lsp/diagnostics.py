"""A finding as an editor shows it."""

from __future__ import annotations

import re
from pathlib import Path

from lsprotocol.types import (
    CodeDescription,
    Diagnostic,
    DiagnosticRelatedInformation,
    DiagnosticSeverity,
    DiagnosticTag,
    Location,
    Position,
    Range,
)
from pygls.uris import from_fs_path

from speclaunch.errors import COMMAND_LINE, Place
from speclaunch.lint.report import ReportedFinding
from speclaunch.lsp.checking import CheckedDocument, is_same_file
from speclaunch.lsp.positions import Positions
from speclaunch.rules.finding import Finding, Severity

SOURCE = "speclaunch"
_SEVERITY = {
    Severity.ERROR: DiagnosticSeverity.Error,
    Severity.WARNING: DiagnosticSeverity.Warning,
    Severity.INFO: DiagnosticSeverity.Information,
}
_TAGS = {"SPL005": [DiagnosticTag.Deprecated], "SPL006": [DiagnosticTag.Unnecessary]}


def diagnostics(checked: CheckedDocument, positions: Positions) -> list[Diagnostic]:
    """Each finding at its place; one in another file at the choice of its group, with where it
    is."""
    return [
        _diagnostic(one, number, checked.path, positions)
        for number, one in enumerate(checked.found)
    ]


def _diagnostic(one: ReportedFinding, number: int, path: str, positions: Positions) -> Diagnostic:
    finding = one.finding
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
        related_information=[one for one in related if one is not None] or None,
        data={"number": number, "versions": list(one.engines)},
    )


def _choice(place: Place, path: str, positions: Positions) -> Place:
    """Where a document chooses the option of a group that another file is; else its beginning."""
    file = Path(place.path)
    wanted = re.compile(
        rf"^\s*-\s*(?:override\s+)?/?(?:{re.escape(file.parent.name)}\s*:\s*)?"
        rf"(?P<option>{re.escape(file.stem)})\s*(?:#.*)?$"
    )
    for number, line in enumerate(positions.lines, 1):
        if (found := wanted.match(line)) is not None:
            return Place(path, number, found.start("option") + 1, len(file.stem))
    return Place(path)


def message(finding: Finding) -> str:
    """What, why, and what to do: a line each."""
    parts = [finding.message, finding.why and f"why: {finding.why}"]
    parts.append(f"help: {finding.fix.text}" if finding.fix is not None else "")
    return "\n".join(part for part in parts if part)


def _related(
    place: Place, positions: Positions, path: str, text: str
) -> DiagnosticRelatedInformation | None:
    if place.path == COMMAND_LINE:
        return None
    if is_same_file(place.path, path):
        where = positions.range(place)
    else:  # a file that is not open here: its columns are close enough
        start = Position(max(place.line - 1, 0), max(place.column - 1, 0))
        where = Range(start, Position(start.line, start.character + max(place.length, 1)))
    uri = from_fs_path(str(Path(place.path).absolute()))
    return DiagnosticRelatedInformation(Location(uri, where), text) if uri else None
