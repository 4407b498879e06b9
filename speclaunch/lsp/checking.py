"""What lint finds in a document as the editor has it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path

from speclaunch import reads
from speclaunch.engine.catalogue import held_versions
from speclaunch.errors import InputError, Place, Problem, SpeclaunchError
from speclaunch.importer.file_kinds import MAX_BYTES
from speclaunch.lint.baseline import Covered, without_known
from speclaunch.lint.collect import LintedFile, read_buffer
from speclaunch.lint.configuration import Configuration, options
from speclaunch.lint.file_codes import UNREADABLE
from speclaunch.lint.groups import recipes_with, told_of_group
from speclaunch.lint.installed import installed_engine
from speclaunch.lint.left_out import LeftOut
from speclaunch.lint.paths import mentions_a_server
from speclaunch.lint.report import FileReport, Report, ToldFile
from speclaunch.lint.run import Options, check, compare, reported
from speclaunch.lint.told_once import Told, told_once
from speclaunch.lsp.cursor import Kind, kind
from speclaunch.lsp.settings import Settings
from speclaunch.record import record
from speclaunch.rules.finding import Finding, Fix

_MOST_RECIPES = 30
"""Through so many an option of a group is checked while somebody types."""


@record
class Part:
    """The lines of a command, and the engine version that it is judged for."""

    first: int
    last: int
    version: str


@record
class Checked:
    """What is known of a document. `source` None: nothing of a server is in it."""

    path: str
    source: LintedFile | None = None
    found: tuple[Told, ...] = ()
    parts: tuple[Part, ...] = ()
    version: str = ""
    """What the whole of it is judged for, where no part is meant."""
    config_dirs: tuple[Path, ...] = ()
    options: Options | None = None
    """How it was checked."""

    def version_at(self, line: int) -> str:
        """The engine version that counts for a line."""
        here = (part.version for part in self.parts if part.first <= line <= part.last)
        return next(here, self.version or held_versions()[-1])


def check_document(
    path: str, text: str, buffers: Mapping[str, bytes], settings: Settings
) -> Checked:
    """Check a document; `buffers` are all that the editor has, by path without links.

    Never raises for what is in it, or for what its repository says of checking.
    """
    data = text.encode("utf-8", "replace")
    is_option = "@package" in text and kind(text, path)[0] is Kind.OPTION
    if not (is_option or mentions_a_server(data)):
        return Checked(path)
    if len(data) > MAX_BYTES:
        what = f"not checked: {len(data)} bytes, more than {MAX_BYTES >> 20} MiB"
        return _refused(path, "", InputError(Problem(what)))
    reads.forget()  # groups and checkpoints as they are now, in the editor or on the disk
    with reads.instead(buffers):
        try:
            configuration = settings.configuration()
            if LeftOut(configuration.above).is_excluded(path):
                return Checked(path)
            if is_option:
                return _through_recipes(path, buffers, configuration, settings)
            return _checked(path, data, configuration)
        except SpeclaunchError as error:
            return _refused(path, text, error)


def _checked(path: str, data: bytes, configuration: Configuration) -> Checked:
    asked = configuration.of(path)
    source = read_buffer(path, data, asked.config_dirs)
    given = options(asked, installed_engine)
    if source is None or source.not_read:
        return Checked(path, source, config_dirs=asked.config_dirs)
    checked = check(source, given)
    compare([checked])
    reports = reported(checked).reports
    parts = [
        Part(extent.first, extent.last, task.version)
        for task in checked.tasks
        for extent in task.source.commands
    ]
    version = reports[0].engine if reports else ""
    found = _new(path, reports, asked.baseline)
    return Checked(path, source, found, tuple(parts), version, asked.config_dirs, given)


def _new(path: str, reports: Sequence[FileReport], baseline: Path | None) -> tuple[Told, ...]:
    """The findings, each once, without those that the repository's baseline knows."""
    left = without_known(Report(tuple(reports)), lambda _: baseline, Covered((path,)))
    return tuple(told_once(left.files))


def _through_recipes(
    path: str, buffers: Mapping[str, bytes], configuration: Configuration, settings: Settings
) -> Checked:
    """An option of a group, through the recipes that choose it."""
    told: list[ToldFile] = []
    for recipe in _choosers(path, settings):
        asked = configuration.of(recipe)
        data = buffers.get(os.path.realpath(recipe))
        held = reads.read_bytes(recipe) if data is None else data
        source = read_buffer(recipe, held, asked.config_dirs)
        if source is not None:
            told.append(reported(check(source, options(asked, installed_engine))))
    reports = told_of_group(path, told).reports
    found = _new(path, reports, configuration.of(path).baseline)
    dirs = configuration.of(path).config_dirs
    return Checked(path, None, found, (), reports[0].engine, dirs)


@lru_cache(maxsize=64)
def _choosers(path: str, settings: Settings) -> tuple[str, ...]:
    """The recipes that choose an option, as they are on the disk; looked for again when something
    is saved."""
    configuration = settings.configuration()
    found = recipes_with(
        path,
        lambda recipe: configuration.of(recipe).config_dirs,
        lambda: LeftOut(configuration.above),
    )
    return tuple(one.path for one in islice(found, _MOST_RECIPES))


def _refused(path: str, text: str, error: SpeclaunchError) -> Checked:
    """The problems of a document that is not checked: its own, or those of its repository."""
    newest = held_versions()[-1]
    name, severity = UNREADABLE.name, UNREADABLE.severity
    found = [
        Finding(
            UNREADABLE.code,
            name,
            severity,
            one.message,
            "",
            Fix(one.help) if one.help else None,
            one.place or Place(path),
            newest,
        )
        for one in error.problems
    ]
    told = tuple(Told(one, (newest,), (path,)) for one in found)
    return Checked(path, LintedFile(path, text), told)


def look_again() -> None:
    """Something was saved: other recipes may choose an option now."""
    _choosers.cache_clear()


def is_same_file(one: str, other: str) -> bool:
    """Whether two paths name one file, as far as they tell."""
    return one == other or Path(one).absolute() == Path(other).absolute()
