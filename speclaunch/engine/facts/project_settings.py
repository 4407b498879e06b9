"""Project settings: `speclaunch.toml`, or `[tool.speclaunch]` in `pyproject.toml`.

Each value is read with its place. Keys, types and assumptions are checked here, for every verb.
Versions, hardware and rule codes are checked when they are used (lint/configuration.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from speclaunch.core import (
    InputError,
    Place,
    Problem,
    UnreadableFileError,
    is_directory,
    is_file,
    lazy,
    read_start,
    reads,
)
from speclaunch.engine.facts.checkpoint_file import is_outside, upward
from speclaunch.engine.facts.known_models import HUB_NAME
from speclaunch.engine.releases.forks import is_path
from speclaunch.engine.releases.nearest import suggest

if TYPE_CHECKING:
    from speclaunch.engine.facts.toml_places import Places, Span

FILE = "speclaunch.toml"
PYPROJECT = "pyproject.toml"
_TABLE = ("tool", "speclaunch")
_MARK = b"speclaunch"
"""Text that every `pyproject.toml` with a speclaunch table contains."""
_MOST_BYTES = 1 << 20
_MAX_KEY_PARTS = 64
_NOT_BARE = lazy(
    r"#[^\n]*|\"{3}(?:\\.|[^\\])*?\"{3}|'{3}.*?'{3}|\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*'", re.DOTALL
)
"""Matches comments and strings in TOML."""
_LONG_KEY = lazy(rf"(?:[\w' \t-]*\.){{{_MAX_KEY_PARTS}}}")
_LINE = lazy(r"line (\d+), column (\d+)")


class ProjectFile(Struct, frozen=True):
    """A settings file: its content (`table`) and the places of its values."""

    path: Path
    table: Mapping[str, Any]
    shown: str
    """The file's path, as reports show it."""
    prefix: tuple[str, ...]
    """Keys that lead to the table."""
    places: Places

    def place(self, *keys: str | int) -> Place:
        """Return the place of a value, or of a table's header."""
        return self._place(self.places.of((*self.prefix, *keys)))

    def key(self, *keys: str | int) -> Place:
        return self._place(self.places.key((*self.prefix, *keys)))

    def _place(self, span: Span) -> Place:
        return Place(self.shown, span.line, span.column, span.length)


@reads.cached(1024)
def nearest_file(directory: Path) -> Path | None:
    """Return the settings file of a directory or of its nearest parent in the repository, or None.

    `speclaunch.toml` takes precedence over `pyproject.toml`. A `pyproject.toml` without
    `[tool.speclaunch]` is skipped. Raises InputError for an invalid `pyproject.toml` that names
    speclaunch.
    """
    for folder in upward(directory):
        if is_file(folder / FILE):
            return folder / FILE
        if is_file(folder / PYPROJECT) and _has_table(folder / PYPROJECT):
            return folder / PYPROJECT
    return None


def _has_table(path: Path) -> bool:
    try:
        data, _ = read_start(path, _MOST_BYTES)
    except UnreadableFileError:  # reported by the tools that use it
        return False
    return _MARK in data and _own_table(_parsed(path)[1]) is not None


def read_project_file(path: Path) -> ProjectFile:
    """Read a settings file. Raises InputError, with the place if the TOML is invalid."""
    from speclaunch.engine.facts.toml_places import places  # noqa: PLC0415  most repositories have none

    text, document = _parsed(path)
    prefix = _TABLE if path.name == PYPROJECT else ()
    table = _own_table(document) if prefix else document
    if table is None:
        place = Place(shown_path(path))
        raise InputError(Problem(f"{path.name} has no [tool.speclaunch] table", place))
    if not isinstance(table, Mapping):
        raise InputError(Problem("`tool.speclaunch` is not a table", Place(shown_path(path))))
    return ProjectFile(path, table, shown_path(path), prefix, places(text))


def shown_path(path: Path) -> str:
    """Return a path as reports show it: relative below the working directory, else absolute."""
    full, here = os.path.abspath(path), os.getcwd()  # noqa: PTH100, PTH109  links are not resolved
    return full[len(here) + 1 :] if full.startswith(here.rstrip(os.sep) + os.sep) else full


def _own_table(document: Mapping[str, Any]) -> Any:
    tools = document.get(_TABLE[0])
    return tools.get(_TABLE[1]) if isinstance(tools, Mapping) else None


def _refuse_long_keys(text: str) -> None:
    """Raise ValueError for a key of many parts, for which `tomllib` takes quadratic time."""
    if max(line.count(".") for line in text.split("\n")) < _MAX_KEY_PARTS:
        return
    bare = _NOT_BARE.sub("''", text)
    found = _LONG_KEY.search(bare)
    if found is not None:
        line = bare.count("\n", 0, found.end()) + 1
        what = f"a key of more than {_MAX_KEY_PARTS} parts"
        raise ValueError(f"{what} (at line {line}, column 1)")


def _parsed(path: Path) -> tuple[str, dict[str, Any]]:
    import tomllib  # noqa: PLC0415  most repositories have no such file

    try:
        data, size = read_start(path, _MOST_BYTES)
        if size > _MOST_BYTES:
            raise UnreadableFileError(f"{path.name} has {size} bytes, more than {_MOST_BYTES}")
    except UnreadableFileError as error:
        raise InputError(Problem(str(error), Place(shown_path(path)))) from None
    try:
        text = data.decode("utf-8")
        _refuse_long_keys(text)
        return text, tomllib.loads(text)
    except RecursionError:
        place = Place(shown_path(path))
        raise InputError(Problem(f"{path.name} is not TOML: nested too deeply", place)) from None
    except ValueError as error:
        at = _LINE.search(str(error))
        last = max(1, len(data.splitlines()))  # "at end of document"
        line, column = (int(at[1]), int(at[2])) if at else (last, 1)
        place = Place(shown_path(path), line, column)
        why = _LINE.sub("", str(error)).replace(" (at )", "")
        if why.startswith("Exceeds the limit"):  # from int()
            line, column, why = 1, 1, "a number with too many digits"
        raise InputError(Problem(f"{path.name} is not TOML: {why}", place)) from None


_MOST_FILES = 32
"""Maximum number of files in a chain of `extend`."""


class EngineCheckMode(StrEnum):
    """Values of `--ask` and of the key `ask`: when to query an engine."""

    AUTO = "auto"
    """Query the engine if exactly the requested release is available."""
    ALWAYS = "always"
    """Always query the engine, which must be available."""
    NEVER = "never"


Assumptions = tuple[tuple[str, str], ...]
"""Pairs of a checkpoint and the checkpoint whose facts it uses."""


class PlacedText(Struct, frozen=True):
    """A value in a file, and its place. Paths are absolute."""

    text: str
    place: Place


class Override(Struct, frozen=True):
    """Settings for files that match `paths`: patterns as in `.gitignore`, relative to `folder`.

    None leaves the general setting unchanged. `ignore` is added to the general setting.
    """

    folder: Path
    paths: tuple[PlacedText, ...] = ()
    engine: tuple[PlacedText, ...] | None = None
    hardware: PlacedText | None = None
    select: tuple[PlacedText, ...] | None = None
    ignore: tuple[PlacedText, ...] = ()


class ExcludedPatterns(Struct, frozen=True):
    """Patterns of files to exclude below `folder`."""

    folder: Path
    patterns: tuple[PlacedText, ...]


class ProjectSettings(Struct, frozen=True):
    """Settings of a file and the files that it extends. `file` is None if there is no file."""

    file: Path | None = None
    engine: tuple[PlacedText, ...] = ()
    hardware: PlacedText | None = None
    models: tuple[PlacedText, ...] = ()
    assume: Assumptions = ()
    config_dir: tuple[PlacedText, ...] = ()
    select: tuple[PlacedText, ...] = ()
    ignore: tuple[PlacedText, ...] = ()
    exclude: ExcludedPatterns | None = None
    overrides: tuple[Override, ...] = ()
    baseline: PlacedText | None = None
    ask: PlacedText | None = None

    @property
    def model_dirs(self) -> tuple[Path, ...]:
        return tuple(Path(folder.text) for folder in self.models)


class SettingsFrom(Struct, frozen=True):
    """Choice of settings file: `file`, else, if `enabled`, the nearest to a folder."""

    file: Path | None = None
    enabled: bool = True

    def file_for(self, folder: Path) -> Path | None:
        """Return a folder's settings file. Raises InputError for a link out of the project."""
        if self.file is not None or not self.enabled:
            return self.file
        found = nearest_file(folder)
        if found is not None and is_outside(found.parent, found):
            help_ = f"name it on the command line: --config {shown_path(found)}"
            raise InputError(Problem(f"{shown_path(found)} links outside the project", help=help_))
        return found

    def of(self, folder: Path) -> ProjectSettings:
        """Return the settings for files in a folder. Raises InputError with all problems."""
        path = self.file_for(folder)
        if path is None:
            return ProjectSettings()
        settings, problems = read_settings(path)
        if problems:
            raise InputError(problems)
        return settings


def assumption(text: str) -> tuple[str, str]:
    """Return the two names in `--assume org/name=org/sibling`. Raises InputError."""
    name, equals, other = text.partition("=")
    if not equals or not name or HUB_NAME.match(other) is None:
        raise InputError(
            Problem(
                f"--assume {text}: expected NAME=ORGANIZATION/SIBLING",
                help="use --assume my-org/Llama-3.1-8B-FP8=meta-llama/Llama-3.1-8B-Instruct",
            )
        )
    return name, other


@reads.cached(256)
def read_settings(path: Path) -> tuple[ProjectSettings, tuple[Problem, ...]]:
    """Return the valid settings of a file and the files that it extends, and all problems.

    Raises InputError for a missing file, invalid TOML or an invalid `extend`.
    """
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for file in reversed(_chain(path)):  # extended files come first
        checked = _Checked(file)
        own = checked.values()
        problems = [*checked.problems, *problems]
        own["assume"] = (values.get("assume") or {}) | own.get("assume", {})
        own["overrides"] = (*values.get("overrides", ()), *own.get("overrides", ()))
        values |= own
    values["assume"] = tuple(values["assume"].items())
    return ProjectSettings(path, **values), tuple(problems)


def _chain(path: Path) -> list[ProjectFile]:
    """Return a file, followed by the files that it extends."""
    chain = [read_project_file(path)]
    while "extend" in chain[-1].table:
        last = chain[-1]
        target = last.table["extend"]
        if not isinstance(target, str) or not target:
            break  # reported with the other problems
        place = last.place("extend")
        found = _resolve_path(last.path, target)
        if is_outside(last.path.parent, found):
            help_ = f"name it on the command line: --config {found}"
            raise InputError(
                Problem(f"`extend` points outside the project: {target}", place, help_)
            )
        if not is_file(found):
            raise InputError(Problem(f"`extend`: no such file: {target}", place))
        if len(chain) >= _MOST_FILES or any(
            reads.realpath(str(found)) == reads.realpath(str(file.path)) for file in chain
        ):
            help_ = "remove an `extend` from the cycle"
            raise InputError(Problem(f"`extend` is cyclic: {target}", place, help_))
        chain.append(read_project_file(found))
    return chain


def _resolve_path(file: Path, written: str) -> Path:
    joined = file.parent / os.path.expanduser(written)  # noqa: PTH111  Path's own raises
    return Path(os.path.normpath(joined))


_At = tuple[str | int, ...]
"""Keys and array indexes that lead to a value."""


class _Checked:
    """Reader of one file's values. It collects problems instead of raising errors."""

    def __init__(self, file: ProjectFile) -> None:
        self._file, self.problems = file, list[Problem]()

    def values(self) -> dict[str, Any]:
        """Return the values by `ProjectSettings` field; None or empty for a wrong type."""
        self._known(self._file.table, _READERS, ())
        found = self._read(self._file.table, _READERS, ())
        found.pop("extend", None)
        return found

    def _known(self, table: Mapping[str, Any], readers: _Readers, at: _At) -> None:
        keys = sorted(readers)
        for key in table:
            if key not in readers:
                near = suggest(str(key), keys) or f"known keys: {', '.join(keys)}"
                self._refuse(f"unknown key `{key}`", self._file.key(*at, key), near)

    def _read(self, table: Mapping[str, Any], readers: _Readers, at: _At) -> dict[str, Any]:
        return {
            key.replace("-", "_"): read(self, (*at, key))
            for key, read in readers.items()
            if key in table
        }

    def ask(self, at: _At) -> PlacedText | None:
        value = self.text(at)
        if value is None or value.text in list(EngineCheckMode):
            return value
        near = (
            suggest(value.text, list(EngineCheckMode))
            or f"valid values: {', '.join(EngineCheckMode)}"
        )
        self._refuse(f"`ask` cannot be {value.text!r:.80}", value.place, near)
        return None

    def assume(self, at: _At) -> dict[str, str]:
        table = self._value(at)
        if not isinstance(table, Mapping):
            help_ = 'write "org/name" = "org/sibling"'
            self._refuse("`assume` is not a table of names", self._file.place(*at), help_)
            return {}
        for name, other in table.items():
            if not isinstance(other, str) or HUB_NAME.match(other) is None:
                why = f"`{name}`: {other!r:.80} is not of the form ORGANIZATION/NAME"
                help_ = 'write "org/name" = "org/sibling"'
                self._refuse(why, self._file.place(*at, name), help_)
        return dict(table)

    def overrides(self, at: _At) -> tuple[Override, ...]:
        tables = self._value(at)
        if not isinstance(tables, list) or not all(isinstance(table, Mapping) for table in tables):
            header = ".".join((*self._file.prefix, "overrides"))
            why = "`overrides` is not an array of tables"
            self._refuse(why, self._file.place(*at), f"write [[{header}]]")
            return ()
        return tuple(self._override(table, (*at, number)) for number, table in enumerate(tables))

    def _override(self, table: Mapping[str, Any], at: _At) -> Override:
        self._known(table, _OVERRIDE_READERS, at)
        if not table.get("paths"):
            help_ = 'write paths = ["legacy/**"]'
            self._refuse("`overrides` has no `paths`", self._file.place(*at), help_)
        return Override(self._file.path.parent, **self._read(table, _OVERRIDE_READERS, at))

    def engine(self, at: _At) -> tuple[PlacedText, ...]:
        found = self.split(at)
        if not found:
            self._refuse("`engine` names no version", self._file.place(*at))
        return tuple(self._absolute(engine) if is_path(engine.text) else engine for engine in found)

    def excluded(self, at: _At) -> ExcludedPatterns:
        return ExcludedPatterns(self._file.path.parent, self.texts(at))

    def split(self, at: _At) -> tuple[PlacedText, ...]:
        """Read a string or a list of strings, each split at commas."""
        return tuple(
            PlacedText(part.strip(), entry.place)
            for entry in self.texts(at)
            for part in entry.text.split(",")
            if part.strip()
        )

    def text(self, at: _At) -> PlacedText | None:
        """Read a non-empty string; None if invalid."""
        value, place = self._value(at), self._file.place(*at)
        if isinstance(value, str) and value:
            return PlacedText(value, place)
        self._refuse(f"`{at[-1]}` is not a string: {value!r:.80}", place)
        return None

    def texts(self, at: _At) -> tuple[PlacedText, ...]:
        value = self._value(at)
        if not isinstance(value, list):
            single = self.text(at)
            return () if single is None else (single,)
        found: list[PlacedText] = []
        for number, part in enumerate(value):
            place = self._file.place(*at, number)
            if isinstance(part, str) and part:
                found.append(PlacedText(part, place))
            else:
                self._refuse(
                    f"`{at[-1]}` contains a value that is not a string: {part!r:.80}", place
                )
        return tuple(found)

    def _value(self, at: _At) -> Any:
        value: Any = self._file.table
        for key in at:
            value = value[key]
        return value

    def _absolute(self, setting: PlacedText) -> PlacedText:
        return PlacedText(str(_resolve_path(self._file.path, setting.text)), setting.place)

    def path(self, at: _At) -> PlacedText | None:
        value = self.text(at)
        return None if value is None else self._absolute(value)

    def paths(self, at: _At) -> tuple[PlacedText, ...]:
        """Read directories. Relative paths must exist; absolute paths may be on another machine."""
        values = self.texts(at)
        found = tuple(map(self._absolute, values))
        for path, written in zip(found, values, strict=True):
            is_own = not written.text.startswith(("/", "~"))
            if is_own and not is_directory(Path(path.text)):
                self._refuse(f"`{at[-1]}`: no such directory: {written.text}", path.place)
        return found

    def _refuse(self, why: str, place: Place, help_: str | None = None) -> None:
        self.problems.append(Problem(f"{self._file.path.name}: {why}", place, help_))


_Readers = Mapping[str, Callable[[_Checked, _At], Any]]
_READERS: _Readers = {
    "ask": _Checked.ask,
    "assume": _Checked.assume,
    "baseline": _Checked.path,
    "config-dir": _Checked.paths,
    "engine": _Checked.engine,
    "exclude": _Checked.excluded,
    "extend": _Checked.text,
    "hardware": _Checked.text,
    "ignore": _Checked.split,
    "models": _Checked.paths,
    "overrides": _Checked.overrides,
    "select": _Checked.split,
}
_OVERRIDE_READERS: _Readers = {
    "paths": _Checked.texts,
    "engine": _Checked.engine,
    "hardware": _Checked.text,
    "select": _Checked.split,
    "ignore": _Checked.split,
}
PROJECT_KEYS = tuple(_READERS)
"""Valid keys in a settings file. A key that sets an option has the option's name."""


__all__ = [
    "FILE",
    "PROJECT_KEYS",
    "Assumptions",
    "EngineCheckMode",
    "ExcludedPatterns",
    "Override",
    "PlacedText",
    "ProjectSettings",
    "SettingsFrom",
    "assumption",
    "read_settings",
]
