"""Settings of each linted file: the command line first, then the repository's configuration.

All values of `speclaunch.toml` and `[tool.speclaunch]` are checked here. A value that applies to no
linted file is still an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks.lint.paths import STDIN
from speclaunch.core import InputError, Place, Problem
from speclaunch.engine import (
    Override,
    PlacedText,
    ProjectSettings,
    SettingsFrom,
    assumption,
    declare,
    is_outside,
    read_settings,
)

if TYPE_CHECKING:
    from speclaunch.checks.engine_check.opinions import EngineQuerier
    from speclaunch.checks.lint.checked_file import Options
    from speclaunch.checks.lint.left_out import Patterns


class LintSettings(Struct, frozen=True):
    """Lint settings of the command line or of one file.

    For one file, `models` and `assume` come only from the command line. Every verb looks up the
    repository's values as facts (rules/examine.py).
    """

    versions: tuple[str, ...] = ()
    """Engine versions to check; if empty, each file's own (see `run.parts_of`)."""
    hardware: str | None = None
    models: tuple[Path, ...] = ()
    config_dirs: tuple[Path, ...] = ()
    assume: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    online: bool = False
    baseline: Path | None = None
    project: SettingsFrom = SettingsFrom()
    overrides_pins: bool = False
    """True if `versions` come from the command line and override a recipe's pin."""

    @property
    def cache_key(self) -> str:
        """All settings that the findings of a file depend on, except later filters."""
        parts = (self.versions, self.hardware, self.config_dirs, self.select, self.ignore)
        return repr((*parts, self.models, self.assume, self.project, self.overrides_pins))

    def selects(self, code: str) -> bool:
        """True if a rule is selected, with the precedence of `rules.registry.selected`."""
        longest = [
            max((len(prefix) for prefix in codes if code.startswith(prefix)), default=-1)
            for codes in (self.select or ("",), self.ignore)
        ]
        return longest[0] > longest[1]


class Configuration:
    """Settings of each file: `stated` on the command line, else its repository's.

    `say` receives the notes about versions.
    """

    def __init__(
        self,
        stated: LintSettings,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._stated, self._say = stated, log
        self._of_folder: dict[str, tuple[Path, ProjectSettings]] = {}
        self._checked: dict[Path, ProjectSettings] = {}
        self._held = cache(self._resolve)
        self._made = cache(self._make)

    def of(self, path: str) -> LintSettings:
        """Return the settings of a linted file. Raises InputError with every problem of its
        configuration file."""
        folder, name = os.path.split("" if path == STDIN else path)
        directory, project = self.above(folder)
        matching = [
            override for override in project.overrides if _matches(override, directory / name)
        ]
        return self._made(project, tuple(matching))

    def above(self, folder: str) -> tuple[Path, ProjectSettings]:
        """Return a folder with links resolved, and the project settings that apply. Raises
        InputError."""
        found = self._of_folder.get(folder)
        if found is None:
            directory = Path(os.path.realpath(folder or "."))
            file = self._stated.project.file_for(directory)
            if file is not None and file not in self._checked:
                self._checked[file] = self._read(file)
            project = ProjectSettings() if file is None else self._checked[file]
            found = self._of_folder[folder] = (directory, project)
        return found

    def _make(self, project: ProjectSettings, overrides: tuple[Override, ...]) -> LintSettings:
        engine, hardware, select = project.engine, project.hardware, project.select
        ignore = list(project.ignore)
        for override in overrides:
            engine = engine if override.engine is None else override.engine
            hardware = hardware if override.hardware is None else override.hardware
            select = select if override.select is None else override.select
            ignore += override.ignore
        stated = self._stated
        held = (self._held(version.text) for version in engine)
        return replace(
            stated,
            versions=stated.versions or tuple(dict.fromkeys(held)),
            hardware=stated.hardware or (hardware.text if hardware is not None else None),
            config_dirs=(*stated.config_dirs, *(Path(path.text) for path in project.config_dir)),
            select=stated.select or tuple(code.text.upper() for code in select),
            ignore=stated.ignore or tuple(code.text.upper() for code in ignore),
            baseline=stated.baseline or _baseline(project.baseline),
            overrides_pins=bool(stated.versions),
        )

    def _resolve(self, text: str) -> str:
        from speclaunch.engine import named  # noqa: PLC0415

        found = named(text)
        if found.note:
            self._say(found.note)
        return found.held

    def _read(self, file: Path) -> ProjectSettings:
        """Read a configuration file. Raises InputError with all its problems, in file order."""
        project, problems = read_settings(file)
        problems = (*problems, *self._wrong(project))
        if problems:
            raise InputError(sorted(problems, key=lambda problem: problem.position))
        return project

    def _wrong(self, project: ProjectSettings) -> Iterator[Problem]:
        overrides = project.overrides
        engines = [version for part in overrides for version in part.engine or ()]
        yield from _refused((*project.engine, *engines), self._held)
        named = (project.hardware, *(override.hardware for override in overrides))
        yield from _refused((name for name in named if name is not None), _require_hardware)
        codes = [code for part in overrides for code in (*(part.select or ()), *part.ignore)]
        yield from _refused((*project.select, *project.ignore, *codes), _require_code)
        excluded = project.exclude.patterns if project.exclude is not None else ()
        paths = [path for part in overrides for path in part.paths]
        yield from _refused((*excluded, *paths), _require_pattern)


def _baseline(setting: PlacedText | None) -> Path | None:
    """Return the baseline that a project file names. Raises InputError if it is outside the
    project."""
    if setting is None:
        return None
    path = Path(setting.text)
    if is_outside(Path(setting.place.path).parent, path):
        help_ = f"pass it on the command line: --baseline {setting.text}"
        raise InputError(Problem("`baseline` is outside the project", setting.place, help_))
    return path


def options(
    settings: LintSettings,
    installed: Callable[[], str | None],
    asker: EngineQuerier | None = None,
) -> Options:
    """Return the check options: rules, sources of facts, the engine check.

    Raises InputError.
    """
    from speclaunch.checks.lint.checked_file import Options  # noqa: PLC0415
    from speclaunch.checks.lint.file_codes import FILE_CODES, REFUSES  # noqa: PLC0415
    from speclaunch.checks.rules.examine import Lookup  # noqa: PLC0415
    from speclaunch.checks.rules.registry import selected  # noqa: PLC0415

    hardware = declare(settings.hardware) if settings.hardware is not None else None
    assumed = tuple(assumption(text) for text in settings.assume)
    lookup = Lookup(settings.models, settings.online, assumed, hardware, project=settings.project)
    rules = selected(settings.select, settings.ignore)
    # findings about files and comments are only removed by --ignore
    notices = (code.code for code in FILE_CODES if not code.code.startswith(settings.ignore))
    codes = frozenset((*(rule.code for rule in rules), *notices))
    everything = not (settings.select or settings.ignore)
    return Options(
        lookup,
        rules,
        settings.versions,
        None if everything else codes,
        installed,
        asker if settings.selects(REFUSES.code) else None,
        settings.overrides_pins,
    )


def _matches(override: Override, path: Path) -> bool:
    return _patterns(override.folder, tuple(pattern.text for pattern in override.paths)).match(
        str(path)
    )


@cache
def _patterns(folder: Path, texts: tuple[str, ...]) -> Patterns:
    from speclaunch.checks.lint.left_out import Patterns  # noqa: PLC0415  most repositories have none

    return Patterns(str(folder), texts)


def _refused(values: Iterable[PlacedText], check: Callable[[str], object]) -> Iterator[Problem]:
    for value in values:
        try:
            check(value.text)
        except InputError as error:
            first = error.problems[0]
            yield Problem(
                f"{Path(value.place.path).name}: {first.message}", value.place, first.help
            )


def _require_hardware(text: str) -> None:

    declare(text)


def _require_pattern(text: str) -> None:
    from speclaunch.checks.lint.left_out import patterns  # noqa: PLC0415

    patterns((text,))


def _require_code(text: str) -> None:
    from speclaunch.checks.lint.file_codes import require_known_code  # noqa: PLC0415

    require_known_code(text.upper(), Place(""))
