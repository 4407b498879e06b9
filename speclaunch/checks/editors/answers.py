"""Answers of the language server: diagnostics, hover texts, completions, quick fixes.

An ignore comment is offered only if a check of the new text no longer reports the finding, and
reports no new finding.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePath

import yaml
from lsprotocol.types import (
    CodeAction,
    CodeActionKind,
    CodeDescription,
    CompletionItem,
    CompletionItemKind,
    Diagnostic,
    DiagnosticRelatedInformation,
    DiagnosticSeverity,
    DiagnosticTag,
    Hover,
    Location,
    MarkupContent,
    MarkupKind,
    OptionalVersionedTextDocumentIdentifier,
    Position,
    Range,
    TextDocumentEdit,
    TextEdit,
    WorkspaceEdit,
)
from pygls.uris import from_fs_path

from speclaunch.checks.edit.edits import NotFixableError, text_edits_between
from speclaunch.checks.edit.edits import TextEdit as OurEdit
from speclaunch.checks.edit.fix_files import edits_of, fix_file
from speclaunch.checks.editors.document import (
    CheckedDocument,
    CursorKind,
    DocumentPositions,
    InCommand,
    InYaml,
    about_key,
    flag_at,
    in_command,
    in_yaml,
    is_same_file,
    is_section,
    key_at,
    keys_below,
    kind,
    values_of,
)
from speclaunch.checks.lint.configuration import mentions_a_server
from speclaunch.checks.lint.report import ReportedFinding
from speclaunch.checks.rules.interface import Finding, Severity, page, page_url
from speclaunch.core import COMMAND_LINE, Place, reads
from speclaunch.deployments import DOCUMENT_SUFFIXES, YAML_SUFFIXES, group_options, recipe_names
from speclaunch.engine import (
    ArgumentKind,
    Catalogue,
    EngineVariable,
    about,
    argument_names,
    argument_values,
    load,
    name_of,
    value_kind,
)

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
    more = [] if here else [_related(finding.place, positions, path, "the value is set here")]
    more += [_related(place, positions, path, "conflicting value") for place in finding.others]
    url = finding.url
    return Diagnostic(
        range=where,
        message=message(finding),
        severity=_SEVERITY[finding.severity],
        code=finding.code,
        code_description=CodeDescription(url) if url is not None else None,
        source=SOURCE,
        tags=_TAGS.get(finding.code),
        related_information=[related for related in more if related is not None] or None,
        data={"number": number, "versions": list(reported.engines)},
    )


def _choice(place: Place, path: str, positions: DocumentPositions) -> Place:
    """Return the place in a document that selects a group option, else the first line."""
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
        reported
        for reported in checked.found
        if (place := reported.finding.place).line == line
        and place.column <= column <= place.column + max(place.length, 1)
        and is_same_file(place.path, checked.path)
    ]


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
    if above in _ARGUMENTS:
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


_ARGUMENTS = (("args",), ("recovery", "minimal"))
Item = Callable[[str, str, CompletionItemKind, str, str], CompletionItem]


def completions(
    checked: CheckedDocument, text: str, positions: DocumentPositions, line: int, column: int
) -> list[CompletionItem]:
    """Return the completions at a line and column, from 1."""
    what, base = kind(text, checked.path)
    catalogue = load(checked.version_at(line))
    if what is CursorKind.COMMANDS:
        here = in_command(positions.lines, line, column)
        if here is None or not mentions_a_server(text.encode("utf-8", "replace")):
            return []
        item = _making(positions, line, here.start, column)
        return list(_flags(here, catalogue, text, item))
    place = in_yaml(positions.lines, line, column, base)
    if place is None:
        return []
    item = _making(positions, line, place.start, column)
    if place.above[:1] == ("defaults",) or (place.above == () and place.key == "defaults"):
        return list(_defaults(place, checked.config_dirs, item))
    if place.above in _ARGUMENTS:
        return list(_arguments(place, catalogue, positions.lines, line, item))
    return list(_keys(place, catalogue, item))


def _making(positions: DocumentPositions, line: int, start: int, column: int) -> Item:
    """Return a function that makes completion items; each replaces the incomplete word."""
    where = Range(positions.position(line, start), positions.position(line, column))

    def item(
        label: str, new: str, kind_: CompletionItemKind, detail: str = "", documentation: str = ""
    ) -> CompletionItem:
        markdown = MarkupContent(MarkupKind.Markdown, documentation)
        return CompletionItem(
            label=label,
            kind=kind_,
            detail=detail or None,
            documentation=markdown if documentation else None,
            filter_text=label,
            text_edit=TextEdit(where, new),
        )

    return item


def _arguments(
    place: InYaml, catalogue: Catalogue, lines: Sequence[str], line: int, item: Item
) -> Iterator[CompletionItem]:
    if place.key is not None:
        found = about(place.key, catalogue)
        if found is not None and found.argument is not None:
            for value in argument_values(found.argument, catalogue.version):
                new = _quoted(value, found.argument.kind)
                yield item(value, new, CompletionItemKind.Value, "", "")
        return
    present = {
        other.strip().partition(":")[0] for number, other in enumerate(lines, 1) if number != line
    }
    for name, _, detail, description in _every_argument(catalogue.version):
        if name not in present:
            yield item(name, f"{name}: ", CompletionItemKind.Property, detail, description)


@lru_cache(maxsize=8)
def _every_argument(version: str) -> tuple[tuple[str, str, str, str], ...]:
    """Return the name, flag, accepted values and description of each argument of a version."""
    catalogue = load(version)
    known = ((name, catalogue.by_name(name)) for name in argument_names(catalogue))
    return tuple(
        (name, known_argument.flag, value_kind(known_argument), argument(name, catalogue))
        for name, known_argument in known
        if known_argument
    )


def _quoted(value: str, kind_: ArgumentKind) -> str:
    """Return a value, quoted if YAML would otherwise not read it as text."""
    is_switch = not kind_.takes_value or kind_ is ArgumentKind.OPTIONAL_VALUE
    words = ("true", "false", "null", "yes", "no", "on", "off", "~", "")
    return f'"{value}"' if not is_switch and value.lower() in words else value


def _defaults(place: InYaml, dirs: Sequence[Path], item: Item) -> Iterator[CompletionItem]:
    groups = group_options(dirs)
    if place.key is not None and place.key != "defaults":
        group = place.key.removeprefix("override").removeprefix("optional").strip(" /")
        for option in groups.get(group, ()):
            yield item(option, option, CompletionItemKind.EnumMember, f"an option of {group}", "")
        return
    for name in ("base", "_self_"):
        yield item(name, name, CompletionItemKind.Module, "", "")
    for group in groups:
        yield item(group, f"{group}: ", CompletionItemKind.Module, "a group", "")
        override = f"override {group}"
        detail = "replace an earlier choice"
        yield item(override, f"{override}: ", CompletionItemKind.Module, detail, "")
    for name in sorted(recipe_names(dirs)):
        yield item(name, name, CompletionItemKind.File, "a recipe", "")


def _keys(place: InYaml, catalogue: Catalogue, item: Item) -> Iterator[CompletionItem]:
    if place.key is not None:
        for value in values_of((*place.above, place.key)):
            yield item(value, value, CompletionItemKind.Value, "", "")
        return
    if place.above == ("engine", "env"):
        for name in catalogue.variables:
            yield item(name, f"{name}: ", CompletionItemKind.Variable, "", "")
        return
    if place.in_list:
        for value in values_of(place.above):
            yield item(value, value, CompletionItemKind.Value, "", "")
        return
    for name in keys_below(place.above):
        path = (*place.above, name)
        new = f"{name}:" if is_section(path) else f"{name}: "
        yield item(name, new, CompletionItemKind.Property, "", about_key(path))


def _flags(
    here: InCommand, catalogue: Catalogue, text: str, item: Item
) -> Iterator[CompletionItem]:
    slime = SLIME in text
    if here.flag is not None:
        found = about(name_of(here.flag.replace(SLIME, "--", 1)), catalogue)
        known = found.argument if found is not None else None
        if known is not None and known.kind.takes_value:
            for value in argument_values(known, catalogue.version):
                yield item(value, value, CompletionItemKind.Value, "", "")
        return
    for _, written, detail, description in _every_argument(catalogue.version):
        flag = written.replace("--", SLIME, 1) if slime else written
        yield item(flag, flag, CompletionItemKind.Field, detail, description)


REASON = "TODO: why"
"""Placeholder for the reason that an ignore comment requires."""
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
        change = _change(uri, version, edits)
        kind_ = CodeActionKind.QuickFix
        return CodeAction(title, kind_, [of], is_preferred=preferred or None, edit=change)

    for diagnostic in diagnostics:
        reported = _meant(checked, diagnostic)
        if reported is None:
            continue
        edits, safe = _fix(checked, reported, positions, buffers)
        if edits and reported.finding.fix is not None:
            text = reported.finding.fix.text
            yield action(text[:1].upper() + text[1:], edits, diagnostic, preferred=safe)
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
    return CodeAction("Apply all safe fixes", FIX_ALL, edit=_change(uri, version, edits))


def _change(uri: str, version: int | None, edits: Sequence[TextEdit]) -> WorkspaceEdit:
    document = OptionalVersionedTextDocumentIdentifier(uri, version)
    return WorkspaceEdit(document_changes=[TextDocumentEdit(document, list(edits))])


def _meant(checked: CheckedDocument, diagnostic: Diagnostic) -> ReportedFinding | None:
    """Return a diagnostic's finding, matched by number, else by message; None without one."""
    data = diagnostic.data
    number = data.get("number") if isinstance(data, Mapping) else None
    several = checked.found
    named = several[number : number + 1] if isinstance(number, int) and number >= 0 else ()
    for reported in (*named, *several):
        finding = reported.finding
        if finding.code == diagnostic.code and diagnostic.message.startswith(finding.message):
            return reported
    return None


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
    """Return an edit that adds a working ignore comment; None if no comment works."""
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
    """True if `path` is not YAML, or both texts are equal except for `comment` in literals."""
    if PurePath(path).suffix.lower() not in YAML_SUFFIXES:
        return True
    try:
        # events, not values: a tag remains a tag, even if its meaning is unknown
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        old, new = (yaml.parse("\n".join(lines), Loader=loader) for lines in (before, after))
        name = comment.partition("[")[0]
        return all(_is_same(*events, name) for events in zip(old, new, strict=True))
    except (yaml.YAMLError, ValueError, RecursionError):
        return False


def _is_same(old: yaml.Event, new: yaml.Event, comment: str) -> bool:
    """True if two YAML events are equal, except for a comment in a literal block (`|`)."""
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
    """Yield line numbers, each with a comment to try.

    A comment that ends with a newline is inserted above the line; any other is appended to it.
    """
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
