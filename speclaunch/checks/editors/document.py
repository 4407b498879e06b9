"""A document in an editor: its check with the editor's settings, and the text at the cursor.

Text at the cursor is read line by line, because documents are often incomplete. speclaunch counts
lines and code points from 1. Editors count from 0, with characters in the negotiated units (UTF-16
by default).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from lsprotocol.types import Position, Range
from msgspec import Struct
from pygls.workspace import PositionCodec

from speclaunch.checks.lint.baseline import Covered, without_known
from speclaunch.checks.lint.cache import installed_engine
from speclaunch.checks.lint.collect import Extent, LintedFile, read_buffer
from speclaunch.checks.lint.configuration import (
    Configuration,
    LintSettings,
    Options,
    mentions_a_server,
    options,
)
from speclaunch.checks.lint.groups import recipes_with, result_of_group
from speclaunch.checks.lint.left_out import LeftOut
from speclaunch.checks.lint.report import (
    FileReport,
    FileResult,
    Report,
    ReportedFinding,
    deduplicate,
)
from speclaunch.checks.lint.run import check, compare, result_of
from speclaunch.checks.rules.registry import UNREADABLE, codes
from speclaunch.core import InputError, Place, SpeclaunchError, expand_user, lazy, reads
from speclaunch.deployments import MAX_BYTES, group_options, recipe_schema
from speclaunch.engine import (
    AUTO,
    assumption,
    declare,
    hardware_names,
    held_versions,
    listed,
    load,
    suggest,
)

_KEY = lazy(
    r"(?P<indent>[ ]*)(?P<dashes>(?:-[ ]+)*)"
    r"(?P<key>[^\s:#'\"\-][^:#]*?|'[^']*'|\"[^\"]*\")[ ]*:(?=\s|$)"
)
_ITEM = lazy(r"(?P<indent>[ ]*)-(?:[ ]+|$)")
_PACKAGE = lazy(r"^#\s*@package\s+(\S+)", re.M)
_RECIPE = lazy(r"^(?:defaults|args)\s*:", re.M)
_MANIFEST = lazy(r"^(?:services|apiVersion)\s*:", re.M)
_FLAG = lazy(r"--[A-Za-z][\w-]*")
_WORD_END = lazy(r"[^\s'\"`,;|&()<>\[\]{}]*\Z")


class CursorKind(StrEnum):
    """Kind of a document, for completion."""

    RECIPE = "recipe"
    OPTION = "option"
    """File that defines an option of a Hydra group."""
    COMMANDS = "commands"
    """Any other file, such as a script or a manifest."""


class InYaml(Struct, frozen=True):
    """Cursor position in a recipe: its parent keys, and the word being typed.

    `word` is the typed part of a key if `key` is None, else of the value of `key`. `start` is the
    column (from 1) where it begins.
    """

    above: tuple[str, ...]
    key: str | None
    word: str
    start: int
    in_list: bool = False


def kind(text: str, path: str) -> tuple[CursorKind, tuple[str, ...]]:
    """Return the kind of a document, and the recipe section that its top-level keys belong to."""
    if not path.endswith((".yaml", ".yml")):
        return CursorKind.COMMANDS, ()
    found = _PACKAGE.search(text)
    if found is not None:
        section = found[1]
        return CursorKind.OPTION, () if section == "_global_" else tuple(section.split("."))
    if _RECIPE.search(text) and not _MANIFEST.search(text):
        return CursorKind.RECIPE, ()
    parts = path.replace("\\", "/").split("/")
    folder = parts[-2] if len(parts) > 1 else ""
    if folder in group_options() and not _MANIFEST.search(text):
        return CursorKind.OPTION, (folder,)
    return CursorKind.COMMANDS, ()


def in_yaml(lines: Sequence[str], line: int, column: int, base: tuple[str, ...]) -> InYaml | None:
    """Return the YAML context at a line and column (from 1); None in a comment."""
    current = lines[line - 1]
    before = current[: column - 1]
    if re.search(r"(?:^|\s)#", before):
        return None
    matched = _KEY.match(current)
    if matched is not None and column - 1 > matched.end():
        above = base + _above(lines, line, len(matched["indent"]) + len(matched["dashes"]))
        value = before[matched.end() :]
        word = re.split(r"[\s\[,]", value)[-1].lstrip("'\"")
        in_list = "[" in value
        return InYaml(above, _bare(matched["key"]), word, column - len(word), in_list)
    item = _ITEM.match(current)
    stripped = before.lstrip(" ")
    if item is not None and len(before) >= len(item["indent"]) + 1:
        stripped = re.sub(r"^(?:-\s*)+", "", stripped)
    indent = len(before) - len(stripped)
    above = base + _above(
        lines, line, indent if item is None else len(item["indent"]), item is not None
    )
    return InYaml(above, None, stripped, indent + 1, item is not None)


def key_at(
    lines: Sequence[str], line: int, column: int, base: tuple[str, ...]
) -> tuple[tuple[str, ...], str, int] | None:
    """Return the key at the cursor: its parents, name and column (from 1); None without a key."""
    matched = _KEY.match(lines[line - 1])
    if matched is None or column - 1 < matched.start("key"):
        return None
    above = base + _above(lines, line, matched.start("key"))
    return above, _bare(matched["key"]), matched.start("key") + 1


def _above(lines: Sequence[str], line: int, indent: int, item: bool = False) -> tuple[str, ...]:
    """Return the keys that contain a line indented by `indent` spaces.

    A list item (`item`) may have the same indentation as its key.
    """
    found: list[str] = []
    for number in range(line - 1, 0, -1):
        text = lines[number - 1]
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        matched = _KEY.match(text)
        here = len(text) - len(text.lstrip(" "))
        is_above = here < indent or (item and here == indent and not text.lstrip().startswith("-"))
        if matched is not None and is_above:
            found.append(_bare(matched["key"]))
            indent, item = here, False
        if here == 0 and indent == 0:
            break
    return tuple(reversed(found))


def _bare(key: str) -> str:
    return key.strip().strip("'\"")


def flag_at(line: str, column: int) -> tuple[str, int, int] | None:
    """Return the flag at `column`, its start and end (columns from 1, end excluded), or None."""
    for found in _FLAG.finditer(line):
        if found.start() <= column - 1 <= found.end():
            return found[0], found.start() + 1, found.end() + 1
    return None


class InCommand(Struct, frozen=True):
    """Word at the cursor in a command: a flag (`flag` is None) or the value of `flag`."""

    flag: str | None
    word: str
    start: int


def in_command(lines: Sequence[str], line: int, column: int) -> InCommand | None:
    """Return the flag, or flag value, that ends at a line and column; None for other words."""
    before = lines[line - 1][: column - 1]
    matched = _WORD_END.search(before)
    word = matched[0] if matched is not None else ""
    start = column - len(word)
    if word.startswith("--"):
        flag, equals, value = word.partition("=")
        if equals:
            return InCommand(flag, value, column - len(value))
        return InCommand(None, word, start)
    rest = before[: start - 1].rstrip(" \t'\"`,[")
    if not rest.strip(" -") and line > 1:  # a word of a list at the start of a line
        rest = lines[line - 2].rstrip().rstrip("\\").rstrip(" '\",")
    last = re.search(r"(--[A-Za-z][\w-]*)\Z", rest)
    return InCommand(last[1], word, start) if last is not None else None


_LINE = lazy(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")


class DocumentPositions:
    """Converter between the editor's and speclaunch's positions in one text."""

    def __init__(self, text: str, codec: PositionCodec) -> None:
        self.lines = [line.rstrip("\r\n") for line in re.findall(_LINE.pattern, text)]
        self._codec = codec

    def position(self, line: int, column: int) -> Position:
        """Return the editor's position for speclaunch's line and column, clamped to the text."""
        if line > len(self.lines):
            line, column = len(self.lines), len(self.lines[-1]) + 1
        number = max(line, 1)
        before = self.lines[number - 1][: max(column - 1, 0)]
        return Position(number - 1, self._codec.client_num_units(before))

    def range(self, place: Place) -> Range:
        end = place.column + max(place.length, 1)
        return Range(self.position(place.line, place.column), self.position(place.line, end))

    def place(self, position: Position) -> tuple[int, int]:
        """Return speclaunch's line and column (from 1) for an editor's position."""
        number = min(max(position.line, 0), len(self.lines) - 1)
        units = 0
        for column, character in enumerate(self.lines[number], 1):
            if units >= position.character:
                return number + 1, column
            units += self._codec.client_num_units(character)
        return number + 1, len(self.lines[number]) + 1


KeyPath = tuple[str, ...]


@cache
def _schema() -> dict[str, Any]:
    return recipe_schema(load(held_versions()[-1]))


def _forms(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    reference = schema.get("$ref")
    if reference is not None:
        yield from _forms(_schema()["definitions"][reference.rpartition("/")[2]])
        return
    yield schema
    for form in schema.get("anyOf", ()):
        yield from _forms(form)


def _at(path: KeyPath) -> dict[str, Any] | None:
    found = _schema()
    for part in path:
        below = [form["properties"] for form in _forms(found) if part in form.get("properties", ())]
        if not below:
            return None
        found = below[0][part]
    return found


def keys_below(path: KeyPath) -> list[str]:
    """Return the keys of a section; empty if the section does not exist."""
    found = _at(path)
    return [name for form in _forms(found or {}) for name in form.get("properties", ())]


def is_section(path: KeyPath) -> bool:
    """True if a key contains other keys."""
    forms = _forms(_at(path) or {})
    return any("properties" in form or "additionalProperties" in form for form in forms)


def about_key(path: KeyPath) -> str:
    """Return the description of a key as Markdown; empty for an unknown key."""
    found = _at(path)
    if found is None or path[:1] == ("defaults",):
        return ""
    descriptions = [form["description"] for form in _forms(found) if form.get("description")]
    default = f"Default: {found['default']!r}." if "default" in found else ""
    return "\n\n".join(filter(None, (f"**{'.'.join(path)}**", *descriptions[:1], default)))


def values_of(path: KeyPath) -> list[str]:
    """Return the valid values of a key; empty if they cannot be listed."""
    if path == ("engine", "version"):
        return [f'"{version}"' for version in reversed(held_versions())]
    if path == ("hardware", "name"):
        return [AUTO, *hardware_names()]
    found: list[str] = []
    for form in _forms(_at(path) or {}):
        found += [_written(value) for value in form.get("enum", ()) if value is not False]
        if form.get("type") == "boolean":
            found += ["true", "false"]
        for item in _forms(form.get("items", {})):
            found += [_written(value) for value in item.get("enum", ())]
    return list(dict.fromkeys(found))


def _written(value: object) -> str:
    return '"off"' if value == "off" else str(value)


_TEXTS = ("engine", "hardware")
_LISTS = ("models", "config_dir", "assume", "select", "ignore")
_FLAGS = ("online",)


class EditorSettings(Struct, frozen=True):
    """Settings from an editor, named like the `lint` options (docs/reference/lint.md)."""

    engine: str | None = None
    hardware: str | None = None
    models: tuple[str, ...] = ()
    config_dir: tuple[str, ...] = ()
    assume: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    online: bool = False

    def configuration(self) -> Configuration:
        """Return a configuration that prefers these settings to a repository's settings.

        Raises SpeclaunchError for an invalid value.
        """
        for text in self.assume:
            assumption(text)
        if self.hardware is not None:
            declare(self.hardware)
        versions = listed(self.engine) if self.engine is not None else ()
        stated = LintSettings(
            tuple(dict.fromkeys(version.held for version in versions)),
            self.hardware,
            tuple(expand_user(path) for path in self.models),
            tuple(expand_user(path) for path in self.config_dir),
            self.assume,
            codes("select", self.select),
            codes("ignore", self.ignore),
            self.online,
        )
        return Configuration(stated)


def read_settings(settings: Any) -> tuple[EditorSettings, list[str]]:
    """Return an editor's valid settings, and a message for each invalid setting."""
    if settings is None:
        return EditorSettings(), []
    if not isinstance(settings, Mapping):
        return EditorSettings(), ["initializationOptions: expected an object"]
    found: dict[str, Any] = {}
    problems = _read(settings, found)
    for name in list(found):
        alone = EditorSettings(**{name: found[name]})
        try:
            alone.configuration()
            for path in (*alone.models, *alone.config_dir):
                if not expand_user(path).is_dir():
                    raise InputError(f"{path}: no such directory")
        except SpeclaunchError as error:
            problems += [f"{name}: {problem.message}" for problem in error.problems]
            del found[name]
    return EditorSettings(**found), problems


def _read(settings: Mapping[Any, Any], found: dict[str, Any]) -> list[str]:
    """Add settings of the right type to `found`, and return a message for each other setting."""
    problems = []
    known = (*_TEXTS, *_LISTS, *_FLAGS)
    for key, value in settings.items():
        name = re.sub(r"(?<=[a-z])([A-Z])", r"_\1", str(key)).lower().replace("-", "_")
        if name not in known:
            hint = suggest(name, known)
            problems.append(f"unknown option {key!r}{f': {hint}' if hint else ''}")
            continue
        if value is None:
            continue
        text = isinstance(value, str)
        several = isinstance(value, list) and all(isinstance(item, str) for item in value)
        if name in _TEXTS and (text or several):
            found[name] = value if text else ",".join(value)
        elif name in _LISTS and (text or several):
            found[name] = (value,) if text else tuple(value)
        elif name in _FLAGS and isinstance(value, bool):
            found[name] = value
        else:
            kind = "true or false" if name in _FLAGS else "text" if name in _TEXTS else "a list"
            problems.append(f"{key}: expected {kind}")
    return problems


_MOST_RECIPES = 30
"""Maximum number of recipes used to check a group option while the user types."""


class CheckedDocument(Struct, frozen=True):
    """Check result of a document. `source` is None for a group option or a text without servers."""

    path: str
    source: LintedFile | None = None
    found: tuple[ReportedFinding, ...] = ()
    commands: tuple[tuple[Extent, str], ...] = ()
    """Lines of each command, with the engine version it is checked for."""
    version: str = ""
    """Engine version for text outside commands."""
    config_dirs: tuple[Path, ...] = ()
    options: Options | None = None

    def version_at(self, line: int) -> str:
        here = (version for extent, version in self.commands if extent.first <= line <= extent.last)
        return next(here, self.version or held_versions()[-1])


def check_document(
    path: str, text: str, buffers: Mapping[str, bytes], settings: EditorSettings
) -> CheckedDocument:
    """Check a document with the editor's open texts (`buffers`, by real path).

    Never raises for errors in the document or in its repository's settings.
    """
    data = text.encode("utf-8", "replace")
    is_option = "@package" in text and kind(text, path)[0] is CursorKind.OPTION
    if not (is_option or mentions_a_server(data)):
        return CheckedDocument(path)
    if len(data) > MAX_BYTES:
        what = f"not checked: the text has {len(data)} bytes, more than {MAX_BYTES >> 20} MiB"
        return _refused(path, "", InputError(what))
    reads.forget()  # read groups and checkpoints again, from the editor or the disk
    with reads.overlay(buffers):
        try:
            configuration = settings.configuration()
            if LeftOut(configuration.above).is_excluded(path):
                return CheckedDocument(path)
            if is_option:
                return _through_recipes(path, buffers, configuration, settings)
            return _checked(path, data, configuration)
        except SpeclaunchError as error:
            return _refused(path, text, error)


def _checked(path: str, data: bytes, configuration: Configuration) -> CheckedDocument:
    own = configuration.of(path)
    source = read_buffer(path, data, own.config_dirs)
    how = options(own, installed_engine)
    if source is None or source.not_read:
        return CheckedDocument(path, source, config_dirs=own.config_dirs)
    checked = check(source, how)
    compare([checked])
    reports = result_of(checked).reports
    commands = tuple(
        (extent, part.engine.version) for part in checked.parts for extent in part.source.commands
    )
    found = _new(path, reports, own.baseline)
    return CheckedDocument(path, source, found, commands, reports[0].engine, own.config_dirs, how)


def _new(
    path: str, reports: Sequence[FileReport], baseline: Path | None
) -> tuple[ReportedFinding, ...]:
    """Return the findings without duplicates and without those in the repository's baseline."""
    left = without_known(Report(tuple(reports)), lambda _: baseline, Covered((path,)))
    return tuple(deduplicate(left.files))


def _through_recipes(
    path: str, buffers: Mapping[str, bytes], configuration: Configuration, settings: EditorSettings
) -> CheckedDocument:
    """Check a group option through the recipes that select it."""
    results: list[FileResult] = []
    for recipe in _choosers(path, settings):
        how = configuration.of(recipe)
        data = buffers.get(os.path.realpath(recipe))
        held = reads.read_bytes(recipe) if data is None else data
        source = read_buffer(recipe, held, how.config_dirs)
        if source is not None:
            results.append(result_of(check(source, options(how, installed_engine))))
    reports = result_of_group(path, results).reports
    own = configuration.of(path)
    found = _new(path, reports, own.baseline)
    return CheckedDocument(path, None, found, (), reports[0].engine, own.config_dirs)


@lru_cache(maxsize=64)
def _choosers(path: str, settings: EditorSettings) -> tuple[str, ...]:
    """Return the recipes on disk that select a group option; `look_again` clears the cache."""
    configuration = settings.configuration()
    found = recipes_with(
        path,
        lambda recipe: configuration.of(recipe).config_dirs,
        lambda: LeftOut(configuration.above),
    )
    return tuple(recipe.path for recipe in islice(found, _MOST_RECIPES))


def _refused(path: str, text: str, error: SpeclaunchError) -> CheckedDocument:
    newest = held_versions()[-1]
    findings = (UNREADABLE.finding(problem, path, newest) for problem in error.problems)
    found = tuple(ReportedFinding(finding, (newest,), (path,)) for finding in findings)
    return CheckedDocument(path, LintedFile(path, text), found)


def look_again() -> None:
    """Clear the cache of `_choosers` after a save: other recipes may now select a group option."""
    _choosers.cache_clear()


def is_same_file(first: str, second: str) -> bool:
    """True if two paths name the same file; links are not resolved."""
    return first == second or Path(first).absolute() == Path(second).absolute()
