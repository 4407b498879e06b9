"""Search the named paths for files that may contain a deployment."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from speclaunch.core import lazy, read_or_none, read_regular
from speclaunch.deployments import (
    KUSTOMIZATIONS,
    MAX_BYTES,
    MAX_PROGRAM_BYTES,
    NOTEBOOK_SUFFIX,
    PYTHON_SUFFIX,
    TEMPLATE_SUFFIXES,
    YAML_SUFFIXES,
    is_dockerfile,
    starts_a_program,
)
from speclaunch.engine import project_root

if TYPE_CHECKING:
    from speclaunch.checks.lint.left_out import Below, LeftOut

STDIN = "-"
STDIN_SHOWN = "<stdin>"
PROSE = frozenset(
    {".md", ".rst", ".adoc", ".txt", ".html", ".log", ".out", ".err"}
    | {".csv", ".tsv", ".jsonl", ".diff", ".patch"}
)
"""Suffixes of files that describe a server or hold its output, and are never run."""
_SUFFIXES = (
    YAML_SUFFIXES
    | {".sh", ".bash", ".zsh", ".slurm", ".sbatch", ".json", ".service", "", NOTEBOOK_SUFFIX}
    | {".md", ".markdown", ".mdx", ".qmd", ".rst"}
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
"""Generated directories; other hidden directories (`.github`, `.gitlab`) hold sources."""
_OF_INTEREST = re.compile(
    rb"sglang|model_path|model-path|speculative|speclaunch: ignore|^(defaults|args):", re.M
)
_PACKAGE = re.compile(rb"^#\s*@package\b", re.M)
_LOCK = re.compile(rb"^lock:", re.M)
_HEAD = 8192
_GITIGNORE = ".gitignore"
_MOST_BYTES_UNREAD = 1 << 20
"""Limit for files without a reader; larger files are data."""
_START = lazy(
    r"\bsglang\.launch_server\b|\bdynamo\.sglang\b|\bsglang_router\.launch_server\b"
    r"|\bsglang[\"']?,?\s+[\"']?serve\b|\b(?:sgl|sglang)\.Engine\("
)
_NO_START = lazy(r"\s*(?:#|//|;|\"\"\"|\*)|.*\b(?:pkill|pgrep|grep|killall|echo|printf)\b")
"""A comment, or a line that stops, searches for or mentions a server."""


class FoundFile(Struct, frozen=True):
    """File to read."""

    path: str
    """Path as named, or below a directory as that was named; `-`: standard input."""
    is_named: bool = False
    """True if it is reported even without deployments."""
    is_unread: bool = False
    """True if it starts a server but has no reader."""


def find_files(
    paths: Sequence[str],
    left_out: Callable[[], LeftOut] | None = None,
    *,
    only_deployments: bool = False,
) -> Iterator[FoundFile]:
    """Yield the files to read: named files, and files below named directories.

    A lock is checked with its recipe: it is left out if the recipe is read, too.

    Below a directory, files must mention a server and not be excluded. With `only_deployments`,
    named files are filtered in the same way, but without Git's ignores, for tools that pass every
    changed file.
    """
    for found in _found(paths, left_out, only_deployments=only_deployments):
        if not (found.path.endswith(".lock.yaml") and _is_with_recipe(found, paths)):
            yield found


def _is_with_recipe(lock: FoundFile, paths: Sequence[str]) -> bool:
    """True if a file is a speclaunch lock, and its recipe is read, too."""
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
                yield from (
                    [FoundFile(path, is_named=True)] if _is_option(path) else _of_interest(path)
                )
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
    """Yield a file found below a directory, if its kind is read and it mentions a server.

    A link counts only if its target is below `root`: a repository's links must not direct reports
    or fixes to other places.
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


def _is_option(file: str) -> bool:
    """True if a file is an option of a group, which mentions no server itself."""
    return file.endswith(".yaml") and _PACKAGE.search(_data(file)) is not None


def mentions_a_server(data: bytes) -> bool:
    """True if a file may concern a server."""
    is_program = b"\0" in data[:_HEAD]  # compiled programs can mention a server, too
    return not is_program and _OF_INTEREST.search(data) is not None


def starts_a_server(text: str) -> bool:
    """True if a line of a text appears to start a server."""
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
    """Return a file's content; if unreadable, a text that makes the reader report why."""
    data = read_or_none(file)
    return b"sglang.launch_server" if data is None else data
