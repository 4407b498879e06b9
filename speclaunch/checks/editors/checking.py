"""Check an editor's current text of a document, with the editor's settings."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct

from speclaunch.checks.editors.cursor import CursorKind, kind
from speclaunch.checks.lint.baseline import Covered, without_known
from speclaunch.checks.lint.cache import installed_engine
from speclaunch.checks.lint.checked_file import Options
from speclaunch.checks.lint.collect import LintedFile, read_buffer
from speclaunch.checks.lint.configuration import Configuration, LintSettings, options
from speclaunch.checks.lint.file_codes import UNREADABLE, codes
from speclaunch.checks.lint.groups import recipes_with, result_of_group
from speclaunch.checks.lint.ignores import Extent
from speclaunch.checks.lint.left_out import LeftOut
from speclaunch.checks.lint.paths import mentions_a_server
from speclaunch.checks.lint.report import (
    FileReport,
    FileResult,
    Report,
    ReportedFinding,
    deduplicate,
)
from speclaunch.checks.lint.run import check, compare, result_of
from speclaunch.core import InputError, Problem, SpeclaunchError, expand_user, reads
from speclaunch.deployments import MAX_BYTES
from speclaunch.engine import assumption, declare, held_versions, listed, suggest

_TEXTS = ("engine", "hardware")
_LISTS = ("models", "config_dir", "assume", "select", "ignore")
_FLAGS = ("online",)


class EditorSettings(Struct, frozen=True):
    """Settings from an editor, with the meanings of the `lint` options in
    docs/reference/lint.md.
    """

    engine: str | None = None
    hardware: str | None = None
    models: tuple[str, ...] = ()
    config_dir: tuple[str, ...] = ()
    assume: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    online: bool = False

    def configuration(self) -> Configuration:
        """Return the configuration of each file: these settings, else its repository's.

        Reads the repository's current settings. Raises SpeclaunchError for an invalid value.
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
    """Return an editor's valid settings, and the problems of its invalid settings."""
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
                    raise InputError(Problem(f"{path}: no such directory"))
        except SpeclaunchError as error:
            problems += [f"{name}: {problem.message}" for problem in error.problems]
            del found[name]
    return EditorSettings(**found), problems


def _read(settings: Mapping[Any, Any], found: dict[str, Any]) -> list[str]:
    """Add settings of the right type to `found`, and return the problems of all others."""
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
    """Result of checking a document. `source` is None if the document contains no server."""

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
        """Return the engine version of a line."""
        here = (version for extent, version in self.commands if extent.first <= line <= extent.last)
        return next(here, self.version or held_versions()[-1])


def check_document(
    path: str, text: str, buffers: Mapping[str, bytes], settings: EditorSettings
) -> CheckedDocument:
    """Check a document; `buffers` are all open texts of the editor, by real path.

    Never raises for errors in the document or in its repository's settings.
    """
    data = text.encode("utf-8", "replace")
    is_option = "@package" in text and kind(text, path)[0] is CursorKind.OPTION
    if not (is_option or mentions_a_server(data)):
        return CheckedDocument(path)
    if len(data) > MAX_BYTES:
        what = f"not checked: {len(data)} bytes, more than {MAX_BYTES >> 20} MiB"
        return _refused(path, "", InputError(Problem(what)))
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
    """Return an unchecked document that reports the problems of `error` as findings."""
    newest = held_versions()[-1]
    findings = (UNREADABLE.finding(problem, path, newest) for problem in error.problems)
    found = tuple(ReportedFinding(finding, (newest,), (path,)) for finding in findings)
    return CheckedDocument(path, LintedFile(path, text), found)


def look_again() -> None:
    """Clear the cached recipes after a save, because other recipes may now select an option."""
    _choosers.cache_clear()


def is_same_file(first: str, second: str) -> bool:
    """True if two paths name the same file; links are not resolved."""
    return first == second or Path(first).absolute() == Path(second).absolute()
