"""Files to lint, and the settings of each from the command line and configuration files."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks.lint.cache import installed_engine
from speclaunch.core import InputError, Place, Problem, lazy, read_or_none, read_regular
from speclaunch.deployments import (
    KUSTOMIZATIONS,
    MAX_BYTES,
    MAX_PROGRAM_BYTES,
    NOTEBOOK_SUFFIX,
    PYTHON_SUFFIX,
    TEMPLATE_SUFFIXES,
    YAML_SUFFIXES,
    is_dockerfile,
    is_template,
    starts_a_program,
)
from speclaunch.engine import (
    Override,
    PlacedText,
    ProjectSettings,
    SettingsFrom,
    assumption,
    declare,
    is_outside,
    project_root,
    read_settings,
)

if TYPE_CHECKING:
    from speclaunch.checks.engine_check.opinions import EngineQuerier
    from speclaunch.checks.lint.left_out import Below, LeftOut, Patterns
    from speclaunch.checks.rules.examine import Lookup
    from speclaunch.checks.rules.interface import Rule


STDIN = "-"
STDIN_SHOWN = "<stdin>"
PROSE = frozenset(
    {".md", ".rst", ".adoc", ".txt", ".html", ".log", ".out", ".err"}
    | {".csv", ".tsv", ".jsonl", ".diff", ".patch"}
)
"""Suffixes of files that describe a server or contain its output, and are never run."""
_SUFFIXES = (
    YAML_SUFFIXES
    | {".sh", ".bash", ".zsh", ".slurm", ".sbatch", ".json", ".service", ".container", ""}
    | {NOTEBOOK_SUFFIX, ".ps1", ".conf"}
    | {".md", ".markdown", ".mdx", ".qmd", ".rst", ".mk", ".mak"}
)
_READ = _SUFFIXES | TEMPLATE_SUFFIXES
_ONLY_PROSE = PROSE - _READ
_SKIPPED = frozenset(
    [
        *("node_modules", "__pycache__", "venv", "site-packages", "dist", "build"),
        *(".git", ".hg", ".svn", ".venv", ".env", ".tox", ".nox", ".eggs", ".direnv", ".pixi"),
        *(".conda", ".cache", ".terraform", ".hypothesis", ".ipynb_checkpoints"),
        *(".mypy_cache", ".ruff_cache", ".pytest_cache"),
    ]
)
"""Names of directories to skip. Other hidden directories, such as `.github`, contain sources."""
_OF_INTEREST = re.compile(
    rb"sglang|model_path|model-path|speculative|speclaunch: ignore|^(defaults|args):", re.M
)
_PACKAGE = lazy(r"^#\s*@package\b", re.M)
_LOCK = re.compile(rb"^lock:", re.M)
_HEAD = 8192
_GITIGNORE = ".gitignore"
_MOST_BYTES_UNREAD = 1 << 20
"""Maximum size in bytes of a file without a reader; larger files are assumed to be data."""
_START = lazy(
    r"\bsglang\.launch_server\b|\bdynamo\.sglang\b|\bsglang_router\.launch_server\b"
    r"|\bsglang[\"']?,?\s+[\"']?serve\b|\b(?:sgl|sglang)\.Engine\("
)
_NO_START = lazy(r"\s*(?:#|//|;|\"\"\"|\*)|.*\b(?:pkill|pgrep|grep|killall|echo|printf)\b")
"""Pattern of comments, and of lines that stop, search for or mention a server."""


class FoundFile(Struct, frozen=True):
    """File to lint."""

    path: str
    """Path that the user named, or a path below a named directory; `-`: standard input."""
    is_named: bool = False
    """True if the file is reported even without deployments."""
    is_unread: bool = False
    """True if the file starts a server but has no reader."""


def find_files(
    paths: Sequence[str],
    left_out: Callable[[], LeftOut] | None = None,
    *,
    only_deployments: bool = False,
) -> Iterator[FoundFile]:
    """Yield the files to lint: named files, and files below named directories.

    Below a directory, files must mention a server and must not be excluded. `only_deployments`
    filters named files in the same way, but without Git's ignore rules, for tools that pass every
    changed file. A lock is left out if its recipe is also read, because a recipe is checked with
    its lock.
    """
    for found in _found(paths, left_out, only_deployments=only_deployments):
        if not (found.path.endswith(".lock.yaml") and _is_with_recipe(found, paths)):
            yield found


def _is_with_recipe(lock: FoundFile, paths: Sequence[str]) -> bool:
    """True if a file is a lock whose recipe is also read."""
    from speclaunch.deployments import recipe_of_lock  # noqa: PLC0415  few files are locks

    recipe = recipe_of_lock(lock.path)
    if recipe is None or (lock.is_named and recipe not in paths):
        return False
    return _LOCK.search(_data(lock.path)) is not None


def _found(
    paths: Sequence[str], left_out: Callable[[], LeftOut] | None, *, only_deployments: bool
) -> Iterator[FoundFile]:
    for path in paths:
        if path == STDIN:
            yield FoundFile(path, is_named=True)
        elif os.path.isdir(path):  # noqa: PTH112  False for a name that is too long
            from speclaunch.checks.lint.left_out import LeftOut  # noqa: PLC0415  not needed for a file

            yield from _below(path, (left_out or LeftOut)().below(path))
        elif only_deployments and os.path.isfile(path):  # noqa: PTH113
            if left_out is None or not left_out().is_excluded(path):
                # an option of a group mentions no server itself
                if path.endswith(".yaml") and has_package(_data(path).decode("utf-8", "replace")):
                    yield FoundFile(path, is_named=True)
                else:
                    yield from _of_interest(path)
        else:
            yield FoundFile(path, is_named=True)


def _below(path: str, left_out: Below) -> Iterator[FoundFile]:
    root = project_root(Path(path))
    for directory, names, files in os.walk(path):
        directories, there = left_out.filtered(
            directory,
            [name for name in names if name not in _SKIPPED],
            [name for name in files if _suffix(name) not in _ONLY_PROSE or name == _GITIGNORE],
        )
        names[:] = sorted(directories)
        base = "" if directory in (".", "./") else str(Path(directory, "x"))[:-1]
        for name in sorted(there):
            yield from _of_interest(f"{base}{name}", root)


def _of_interest(file: str, root: str | None = None) -> Iterator[FoundFile]:
    """Yield the file if it must be read or reported, because it mentions a server.

    A link is followed only if its target is below `root`, so a repository cannot direct reports or
    fixes to files outside it.
    """
    try:
        found = os.lstat(file)  # faster than pathlib
        if stat.S_ISLNK(found.st_mode):
            if root is not None and not Path(os.path.realpath(file)).is_relative_to(root):
                return
            found = os.stat(file)  # noqa: PTH116
    except OSError:
        return
    if not stat.S_ISREG(found.st_mode):
        return
    suffix = _suffix(file)
    if suffix not in _READ and is_template(file):  # `x.yaml.template` is read as `x.yaml`
        suffix = _suffix(file[: -len(suffix)])
    if suffix == PYTHON_SUFFIX:
        if found.st_size <= MAX_PROGRAM_BYTES and starts_a_program(_data(file)):
            yield FoundFile(file)
    elif suffix not in _READ and not is_dockerfile(file):
        if suffix not in PROSE and _starts_unread(file):
            yield FoundFile(file, is_unread=True)
    elif found.st_size <= MAX_BYTES and (
        file.rpartition("/")[2] in KUSTOMIZATIONS or mentions_a_server(_data(file))
    ):
        yield FoundFile(file)


def has_package(text: str) -> bool:
    """True if a YAML text has the package comment of a Hydra group's option."""
    return "@package" in text and _PACKAGE.search(text) is not None


def mentions_a_server(data: bytes) -> bool:
    """True if `data` may concern a server."""
    is_program = b"\0" in data[:_HEAD]  # compiled programs can mention a server, too
    return not is_program and _OF_INTEREST.search(data) is not None


def starts_a_server(text: str) -> bool:
    """True if a line of `text` appears to start a server."""
    if _START.search(text) is None:
        return False
    return any(_START.search(line) and not _NO_START.match(line) for line in text.splitlines())


def _starts_unread(file: str) -> bool:
    """True if a file that no reader supports appears to start a server."""
    try:
        data = read_regular(file, _MOST_BYTES_UNREAD)
    except OSError:
        return False
    return (
        b"\0" not in data[:_HEAD]
        and b"sgl" in data
        and starts_a_server(data.decode("utf-8", "replace"))
    )


def _suffix(name: str) -> str:
    """Return `Path.suffix` in lower case."""
    name = name[name.rfind("/") + 1 :]
    dot = name.rfind(".")
    return name[dot:].lower() if 0 < dot < len(name) - 1 else ""


def _data(file: str) -> bytes:
    """Return a file's content; if unreadable, bytes that make the reader report why."""
    data = read_or_none(file)
    return b"sglang.launch_server" if data is None else data


class LintSettings(Struct, frozen=True):
    """Lint settings of the command line or of one file.

    `models` and `assume` are always those of the command line. The lookup of facts adds the
    repository's values (rules/examine.py).
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
        """Text of the settings that affect a file's findings, without those that only hide them."""
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
    """Settings of each file: those `stated` on the command line, else its repository's.

    `log` receives the notes about versions.
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
        """Return a file's settings. Raises InputError with all problems of its configuration."""
        folder, name = os.path.split("" if path == STDIN else path)
        directory, project = self.above(folder)
        file = str(directory / name)
        matching = (
            override
            for override in project.overrides
            if _patterns(override.folder, tuple(p.text for p in override.paths)).match(file)
        )
        return self._made(project, tuple(matching))

    def above(self, folder: str) -> tuple[Path, ProjectSettings]:
        """Return a folder with links resolved, and its project settings. Raises InputError."""
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
        """Return the settings in a file. Raises InputError with all its problems, in file order."""
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
        yield from _refused((name for name in named if name is not None), declare)
        codes = [code for part in overrides for code in (*(part.select or ()), *part.ignore)]
        yield from _refused((*project.select, *project.ignore, *codes), _require_code)
        excluded = project.exclude.patterns if project.exclude is not None else ()
        paths = [path for part in overrides for path in part.paths]
        yield from _refused((*excluded, *paths), _require_pattern)


def _baseline(setting: PlacedText | None) -> Path | None:
    """Return a project's baseline path, if set. Raises InputError if it is outside the project."""
    if setting is None:
        return None
    path = Path(setting.text)
    if is_outside(Path(setting.place.path).parent, path):
        help_ = f"pass it on the command line: --baseline {setting.text}"
        raise InputError("`baseline` is outside the project", setting.place, help_)
    return path


class Options(Struct, frozen=True):
    """Options of a file check: `LintSettings` with rules and sources of facts resolved."""

    lookup: Lookup
    rules: tuple[Rule, ...]
    versions: tuple[str, ...] = ()
    """Engine versions to check; if empty, each file's own (see `parts_of`)."""
    selected_codes: frozenset[str] | None = None
    """Selected rule codes, or None for all. Needed to detect unused ignore comments."""
    installed: Callable[[], str | None] = installed_engine
    """Function that returns the name of the installed engine's catalogue, or None without one."""
    asker: EngineQuerier | None = None
    """Querier of the engines themselves; None disables the engine check."""
    overrides_pins: bool = False
    """True if `versions` come from the command line and override a recipe's pin."""

    def selects(self, code: str) -> bool:
        return self.selected_codes is None or code in self.selected_codes


def options(
    settings: LintSettings,
    installed: Callable[[], str | None],
    asker: EngineQuerier | None = None,
) -> Options:
    """Return the options with rules, sources of facts and the engine check. Raises InputError."""
    from speclaunch.checks.rules.examine import Lookup  # noqa: PLC0415
    from speclaunch.checks.rules.registry import (  # noqa: PLC0415
        FILE_CODES,
        REFUSES,
        selected,
    )

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


def _require_pattern(text: str) -> None:
    from speclaunch.checks.lint.left_out import patterns  # noqa: PLC0415

    patterns((text,))


def _require_code(text: str) -> None:
    from speclaunch.checks.rules.registry import require_known_code  # noqa: PLC0415

    require_known_code(text.upper(), Place(""))
