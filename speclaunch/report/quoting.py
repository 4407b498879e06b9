"""The files whose lines are quoted: those of the projects that the user named, and ours.

A file of a repository may name, or be a link to, any file of this machine: `/etc/shadow`. Messages
about such a file have its path and line, and nothing of its text.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache

from speclaunch import errors
from speclaunch.resources import shipped


def may_quote(path: str) -> bool:
    """True if lines of a file may be shown: it lies in the project of the working directory or of a
    path that the command line names. Always true for who uses this as a library."""
    args = errors.command_line
    if args is None:
        return True
    try:
        return _is_inside(os.path.abspath(path), _roots(os.getcwd(), args))
    except (OSError, ValueError):
        return False


def _is_inside(path: str, roots: Sequence[str]) -> bool:
    real = os.path.realpath(path)
    for root in roots:
        if _below(path, root):
            repository = _repository(os.path.dirname(path))
            base = repository if repository is not None and _below(repository, root) else root
            if _below(real, os.path.realpath(base)):
                return True
    return False


@lru_cache(maxsize=4)
def _roots(here: str, args: Sequence[str]) -> tuple[str, ...]:
    found = [here, *map(str, shipped())]
    for arg in args:
        for name in (arg, arg.partition("=")[2]):
            if name and len(name) < os.pathconf("/", "PC_PATH_MAX") and os.path.lexists(name):
                path = os.path.abspath(name)
                found.append(path if os.path.isdir(path) else os.path.dirname(path))
    return tuple(dict.fromkeys(_repository(one) or one for one in found))


@lru_cache(maxsize=4096)
def _repository(folder: str) -> str | None:
    """The nearest directory with `.git`, from a directory upward."""
    while True:
        if os.path.lexists(os.path.join(folder, ".git")):
            return folder
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


def _below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)
