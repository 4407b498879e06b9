"""Quick fixes: the edits of a finding's fix, and a comment that ignores a finding.

A comment is offered only if a check of the new text no longer reports this finding and reports no
new one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

import yaml
from lsprotocol.types import (
    CodeAction,
    CodeActionKind,
    Diagnostic,
    OptionalVersionedTextDocumentIdentifier,
    Position,
    Range,
    TextDocumentEdit,
    TextEdit,
    WorkspaceEdit,
)

from speclaunch.checks.edit.edits import TextEdit as OurEdit
from speclaunch.checks.edit.edits import text_edits_between
from speclaunch.checks.edit.fix_file import edits_of, fix_file
from speclaunch.checks.edit.fix_target import NotFixableError
from speclaunch.checks.editors.checking import CheckedDocument, is_same_file
from speclaunch.checks.editors.cursor import DocumentPositions
from speclaunch.checks.lint.report import ReportedFinding
from speclaunch.checks.rules.finding import Finding
from speclaunch.core import reads
from speclaunch.deployments import DOCUMENT_SUFFIXES, YAML_SUFFIXES

if TYPE_CHECKING:
    import yaml

REASON = "TODO: why"
"""Placeholder reason of a new comment; a reason is required."""
_NO_COMMENTS = (".json",)


def actions(
    checked: CheckedDocument,
    diagnostics: Sequence[Diagnostic],
    positions: DocumentPositions,
    uri: str,
    version: int | None,
    again: Callable[[str], CheckedDocument],
    buffers: Mapping[str, bytes],
) -> Iterator[CodeAction]:
    """Yield quick fixes for the diagnostics of an editor's request. `again` checks a new text."""

    def action(title: str, edits: list[TextEdit], of: Diagnostic, *, preferred: bool) -> CodeAction:
        document = OptionalVersionedTextDocumentIdentifier(uri, version)
        return CodeAction(
            title,
            CodeActionKind.QuickFix,
            [of],
            is_preferred=preferred or None,
            edit=WorkspaceEdit(document_changes=[TextDocumentEdit(document, list(edits))]),
        )

    for diagnostic in diagnostics:
        reported = _meant(checked, diagnostic)
        if reported is None:
            continue
        edits, safe = _fix(checked, reported, positions, buffers)
        if edits and reported.finding.fix is not None:
            yield action(_title(reported.finding.fix.text), edits, diagnostic, preferred=safe)
        comment = _ignore(checked, reported, positions, again)
        if comment is not None:
            title = f"Ignore {reported.finding.code} here, with a reason"
            yield action(title, [comment], diagnostic, preferred=False)


FIX_ALL = "source.fixAll.speclaunch"
"""Kind of the code action that editors run on save, if configured."""


def fix_all(
    checked: CheckedDocument,
    positions: DocumentPositions,
    uri: str,
    version: int | None,
    buffers: Mapping[str, bytes],
) -> CodeAction | None:
    """Return all safe fixes of a document, as `lint --fix` applies them; None if there are none."""
    if checked.source is None or checked.options is None:
        return None
    with reads.overlay(buffers):
        done = fix_file(checked.source, checked.options, checked.config_dirs)
    if not done.is_changed:
        return None
    edits = _as_edits(text_edits_between(done.before, done.after), positions)
    document = OptionalVersionedTextDocumentIdentifier(uri, version)
    change = WorkspaceEdit(document_changes=[TextDocumentEdit(document, list(edits))])
    return CodeAction("Apply all safe fixes", FIX_ALL, edit=change)


def _title(text: str) -> str:
    return text[:1].upper() + text[1:]


def _meant(checked: CheckedDocument, diagnostic: Diagnostic) -> ReportedFinding | None:
    """Return the finding of a diagnostic, by its number if that still matches, else by message."""
    data = diagnostic.data
    number = data.get("number") if isinstance(data, Mapping) else None
    several = checked.found
    named = several[number : number + 1] if isinstance(number, int) and number >= 0 else ()
    return next(
        (reported for reported in (*named, *several) if _matches(reported.finding, diagnostic)),
        None,
    )


def _matches(finding: Finding, diagnostic: Diagnostic) -> bool:
    return finding.code == diagnostic.code and diagnostic.message.startswith(finding.message)


def _fix(
    checked: CheckedDocument,
    reported: ReportedFinding,
    positions: DocumentPositions,
    buffers: Mapping[str, bytes],
) -> tuple[list[TextEdit], bool]:
    if checked.source is None:
        return [], False
    with reads.overlay(buffers):
        try:
            found = edits_of(
                checked.source, reported.finding, checked.config_dirs, reported.engines
            )
        except NotFixableError:
            return [], False
    if not is_same_file(found.path, checked.path):
        return [], False
    return _as_edits(found.edits, positions), found.safe


def _as_edits(edits: Iterable[OurEdit], positions: DocumentPositions) -> list[TextEdit]:
    return [
        TextEdit(
            Range(
                positions.position(edit.line, edit.column),
                positions.position(edit.end_line, edit.end_column),
            ),
            edit.new,
        )
        for edit in edits
    ]


def _ignore(
    checked: CheckedDocument,
    reported: ReportedFinding,
    positions: DocumentPositions,
    again: Callable[[str], CheckedDocument],
) -> TextEdit | None:
    """Return an edit that adds an ignore comment; None if no position works."""
    finding = reported.finding
    here = is_same_file(finding.place.path, checked.path)
    if not here or checked.path.endswith(_NO_COMMENTS):
        return None
    before = _kinds(checked)
    comment = f"# speclaunch: ignore[{finding.code}] {REASON}"
    for line, new in _candidates(checked, finding, positions.lines, comment):
        lines = list(positions.lines)
        at = len(lines[line - 1]) if new.startswith(" ") and not new.endswith("\n") else 0
        text = lines[line - 1]
        lines[line - 1] = text[:at] + new + text[at:]
        if not _means_the_same(checked.path, positions.lines, lines, comment):
            continue
        after = _kinds(again("\n".join(lines)))
        if before - after and not after - before and after[_kind(finding)] < before[_kind(finding)]:
            where = positions.position(line, at + 1)
            return TextEdit(Range(where, Position(where.line, where.character)), new)
    return None


def _means_the_same(path: str, before: Sequence[str], after: Sequence[str], comment: str) -> bool:
    """True if the YAML has the same meaning before and after, except for `comment` in a script."""
    if PurePath(path).suffix.lower() not in YAML_SUFFIXES:
        return True

    try:
        # events, not values: a tag remains a tag, even if its meaning is unknown
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        old, new = (yaml.parse("\n".join(lines), Loader=loader) for lines in (before, after))
        name = comment.partition("[")[0]
        return all(
            _is_same(old_event, new_event, name)
            for old_event, new_event in zip(old, new, strict=True)
        )
    except (yaml.YAMLError, ValueError, RecursionError):
        return False


def _is_same(old: yaml.Event, new: yaml.Event, comment: str) -> bool:
    """True if two YAML events are equal, except for a comment in a script after `|`."""

    if repr(old) == repr(new):  # class, anchor, tag, value
        return True
    if not isinstance(old, yaml.ScalarEvent) or not isinstance(new, yaml.ScalarEvent):
        return False
    if (old.style, new.style, old.anchor, old.tag) != ("|", "|", new.anchor, new.tag):
        return False
    lines = new.value.split("\n")
    bare = [line.partition(comment)[0].rstrip() for line in lines]
    remaining = [text for text, line in zip(bare, lines, strict=True) if text or not line]
    return remaining == [line.rstrip() for line in old.value.split("\n")]


def _candidates(
    checked: CheckedDocument, finding: Finding, lines: Sequence[str], comment: str
) -> Iterator[tuple[int, str]]:
    """Yield a line, and the text to append (it begins with a space) or to insert above it."""
    line = finding.place.line
    text = lines[line - 1]
    extents = (extent for extent, _ in checked.commands)
    part = next((extent for extent in extents if extent.first <= line <= extent.last), None)
    is_alone = part is None or part.first == part.last
    if is_alone and not text.rstrip().endswith("\\") and "#" not in text:
        yield line, f"  {comment}"
    if is_alone and PurePath(checked.path).suffix.lower() in DOCUMENT_SUFFIXES:
        yield line, f"  <!-- {comment.removeprefix('# ')} -->"
    first = line if part is None else part.first
    indent = lines[first - 1][: len(lines[first - 1]) - len(lines[first - 1].lstrip())]
    yield first, f"{indent}{comment}\n"
    yield line, f"{text[: len(text) - len(text.lstrip())]}{comment}\n"
    top = 2 if lines[0].startswith("#!") and len(lines) > 1 else 1
    yield top, comment.replace("ignore[", "ignore-file[") + "\n"


def _kinds(checked: CheckedDocument) -> Counter[tuple[str, str]]:
    return Counter(_kind(reported.finding) for reported in checked.found)


def _kind(finding: Finding) -> tuple[str, str]:
    return finding.code, finding.message
