"""`speclaunch.toml`: what a repository says for all files below it.

Only `[assume]` so far: checkpoints whose facts are taken to be those of another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speclaunch import reads
from speclaunch.engine.nearest import nearest
from speclaunch.errors import InputError, Place, Problem
from speclaunch.facts.hub_name import HUB_NAME
from speclaunch.facts.repository_facts import upward
from speclaunch.facts.safe_json import UnreadableFileError, is_file, read_start
from speclaunch.patterns import lazy

FILE = "speclaunch.toml"
_MOST_BYTES = 1 << 20
_TABLES = ("assume",)
_LINE = lazy(r"line (\d+), column (\d+)")

Assumptions = tuple[tuple[str, str], ...]
"""Pairs of a checkpoint and the one that it is taken to be as."""


def assumption(text: str) -> tuple[str, str]:
    """The two names of `--assume org/name=org/sibling`. Raises InputError."""
    name, equals, other = text.partition("=")
    if not equals or not name or HUB_NAME.match(other) is None:
        raise InputError(
            Problem(
                f"--assume {text}: not of the form NAME=ORGANISATION/SIBLING",
                help="write --assume my-org/Llama-3.1-8B-FP8=meta-llama/Llama-3.1-8B-Instruct",
            )
        )
    return name, other


@reads.remembered(1024)
def assumed_above(directory: Path) -> Assumptions:
    """The assumptions of the nearest `speclaunch.toml` in a directory or above it.

    Raises InputError for a file that is not of its form.
    """
    for folder in upward(directory):
        if is_file(folder / FILE):
            return _assumptions(folder / FILE)
    return ()


def _assumptions(path: Path) -> Assumptions:
    import tomllib  # noqa: PLC0415  most repositories have no such file

    try:
        data, size = read_start(path, _MOST_BYTES)
        if size > _MOST_BYTES:
            raise UnreadableFileError(f"{FILE} has {size} bytes, more than {_MOST_BYTES}")
        said = tomllib.loads(data.decode("utf-8"))
    except UnreadableFileError as error:
        raise InputError(Problem(str(error), place=Place(str(path)))) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        at = _LINE.search(str(error))
        last = max(1, len(data.splitlines()))  # "at end of document"
        line, column = (int(at[1]), int(at[2])) if at else (last, 1)
        place = Place(str(path), line, column)
        raise InputError(Problem(f"{FILE} is not TOML: {error}", place)) from None
    for key in said:
        if key not in _TABLES:
            raise _refused(path, f"unknown table `{key}`", key, nearest(key, _TABLES))
    table: Any = said.get("assume", {})
    if not isinstance(table, Mapping):
        raise _refused(path, "`assume` is not a table of names", "assume")
    for name, other in table.items():
        if not isinstance(other, str) or HUB_NAME.match(other) is None:
            why = f"`{name}` is assumed to be as {other!r:.80}, which is not ORGANISATION/NAME"
            raise _refused(path, why, name)
    return tuple(table.items())


def _refused(path: Path, why: str, key: str, near: tuple[str, ...] = ()) -> InputError:
    """With the line on which the key stands."""
    lines = reads.read_text(path).splitlines()
    at = next((number for number, line in enumerate(lines, 1) if key in line), 1)
    remedy = f"did you mean `{near[0]}`?" if near else 'write "org/name" = "org/sibling"'
    return InputError(Problem(f"{FILE}: {why}", place=Place(str(path), at, 1), help=remedy))
