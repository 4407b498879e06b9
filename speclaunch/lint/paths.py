"""From the paths that somebody names to the files that may hold a deployment."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from speclaunch.importer.suffixes import MAX_BYTES, TEMPLATE_SUFFIXES, YAML_SUFFIXES
from speclaunch.lint.unread_files import PROSE, unread
from speclaunch.record import record

STDIN = "-"
_SUFFIXES = YAML_SUFFIXES | {".sh", ".bash", ".zsh", ".md", ".json", ".service", ""}
_READ = _SUFFIXES | TEMPLATE_SUFFIXES
_SKIPPED = frozenset(
    [
        *("node_modules", "__pycache__", "venv", "site-packages", "dist", "build"),
        *(".git", ".hg", ".svn", ".venv", ".env", ".tox", ".nox", ".eggs", ".direnv", ".pixi"),
        *(".conda", ".cache", ".terraform", ".hypothesis", ".ipynb_checkpoints"),
        *(".mypy_cache", ".ruff_cache", ".pytest_cache"),
    ]
)
"""Directories that programs fill; the other hidden ones (`.github`, `.gitlab`) hold people's."""
_OF_INTEREST = re.compile(rb"sglang|model_path|model-path|speculative|^(defaults|args):", re.M)
_HEAD = 8192


@record
class FoundFile:
    """A file to look into."""

    path: str
    """As it was given, or below the directory as that was given; `-`: standard input."""
    is_named: bool = False
    """It is answered for whatever is in it; of the others, those in which something is."""
    is_unread: bool = False
    """It starts a server, and is of a kind that has no reader."""


def find_files(paths: Sequence[str]) -> Iterator[FoundFile]:
    """Every path: files as they are, directories with what lies below them.

    Below a directory only what mentions a server counts.
    """
    for path in paths:
        if path != STDIN and Path(path).is_dir():
            yield from _below(path)
        else:
            yield FoundFile(path, is_named=True)


def _below(path: str) -> Iterator[FoundFile]:
    for directory, names, files in os.walk(path):
        names[:] = sorted(name for name in names if name not in _SKIPPED)
        for name in sorted(files):
            file = Path(directory) / name
            if not file.is_file():
                continue
            if file.suffix.lower() not in _READ:
                if file.suffix.lower() not in PROSE and unread(file):
                    yield FoundFile(str(file), is_unread=True)
            elif _mentions_a_server(file):
                yield FoundFile(str(file))


def _mentions_a_server(file: Path) -> bool:
    try:
        if file.stat().st_size > MAX_BYTES:
            return False
        data = file.read_bytes()
        is_program = b"\0" in data[:_HEAD]  # a compiled one can mention a server, too
        return not is_program and _OF_INTEREST.search(data) is not None
    except OSError:
        return True  # the reader says why
