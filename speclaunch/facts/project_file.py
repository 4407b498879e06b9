"""The file that configures speclaunch for what lies below it, read with the places of its values.

`speclaunch.toml`, or the table `[tool.speclaunch]` of `pyproject.toml`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speclaunch import reads
from speclaunch.errors import InputError, Place, Problem
from speclaunch.facts.repository_facts import upward
from speclaunch.patterns import lazy
from speclaunch.reads.safe_json import UnreadableFileError, is_file, read_start
from speclaunch.record import record

if TYPE_CHECKING:
    from speclaunch.facts.toml_places import Places, Span

FILE = "speclaunch.toml"
PYPROJECT = "pyproject.toml"
_TABLE = ("tool", "speclaunch")
_MARK = b"speclaunch"
"""What a `pyproject.toml` with a table of ours has in it."""
_MOST_BYTES = 1 << 20
_MAX_KEY_PARTS = 64
_NOT_BARE = lazy(
    r"#[^\n]*|\"{3}(?:\\.|[^\\])*?\"{3}|'{3}.*?'{3}|\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*'", re.DOTALL
)
"""Comments and strings."""
_LONG_KEY = lazy(rf"(?:[\w' \t-]*\.){{{_MAX_KEY_PARTS}}}")
_LINE = lazy(r"line (\d+), column (\d+)")


@record
class ProjectFile:
    """One file: what it says (`table`), and where."""

    path: Path
    table: Mapping[str, Any]
    shown: str
    """Its path as a report names it."""
    prefix: tuple[str, ...]
    """The keys that lead to the table."""
    places: Places

    def place(self, *keys: str | int) -> Place:
        """Where a value stands; of a table, its header."""
        return self._place(self.places.of((*self.prefix, *keys)))

    def key(self, *keys: str | int) -> Place:
        """Where a key stands."""
        return self._place(self.places.key((*self.prefix, *keys)))

    def _place(self, span: Span) -> Place:
        return Place(self.shown, span.line, span.column, span.length)


@reads.remembered(1024)
def nearest_file(directory: Path) -> Path | None:
    """The file that counts in a directory: its own, or that of the nearest one above, as far as
    the repository goes. `speclaunch.toml` goes before `pyproject.toml`, and one without
    `[tool.speclaunch]` is passed over. Raises InputError for a `pyproject.toml` that cannot be
    read, where it names us.
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
    except UnreadableFileError:  # whoever it is for says so
        return False
    return _MARK in data and _own_table(_parsed(path)[1]) is not None


def read_project_file(path: Path) -> ProjectFile:
    """One file by its name. Raises InputError with the place of what is no TOML."""
    from speclaunch.facts.toml_places import places  # noqa: PLC0415  most repositories have none

    text, said = _parsed(path)
    prefix = _TABLE if path.name == PYPROJECT else ()
    table = _own_table(said) if prefix else said
    if table is None:
        place = Place(shown_path(path))
        raise InputError(Problem(f"{path.name} has no table [tool.speclaunch]", place))
    if not isinstance(table, Mapping):
        raise InputError(Problem("`tool.speclaunch` is not a table", Place(shown_path(path))))
    return ProjectFile(path, table, shown_path(path), prefix, places(text))


def shown_path(path: Path) -> str:
    """A path from the working directory, where it lies below it."""
    whole, here = os.path.abspath(path), os.getcwd()  # noqa: PTH100, PTH109  links stay
    return whole[len(here) + 1 :] if whole.startswith(here.rstrip(os.sep) + os.sep) else whole


def _own_table(said: Mapping[str, Any]) -> Any:
    tools = said.get(_TABLE[0])
    return tools.get(_TABLE[1]) if isinstance(tools, Mapping) else None


def _refuse_long_keys(text: str) -> None:
    """Raise ValueError for a dotted key of many parts: `tomllib` takes quadratic time for it."""
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
        raise InputError(Problem(f"{path.name} is not TOML: nested too deep", place)) from None
    except ValueError as error:
        at = _LINE.search(str(error))
        last = max(1, len(data.splitlines()))  # "at end of document"
        line, column = (int(at[1]), int(at[2])) if at else (last, 1)
        place = Place(shown_path(path), line, column)
        why = _LINE.sub("", str(error)).replace(" (at )", "")
        if why.startswith("Exceeds the limit"):  # of int()
            line, column, why = 1, 1, "a number of too many digits"
        raise InputError(Problem(f"{path.name} is not TOML: {why}", place)) from None
