"""The facts of checkpoints that a team keeps: `.speclaunch/models/` beside its recipes, or above.

A repository is a stranger like any other: a name or a link in it never leads out of that folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from speclaunch.core import UnreadableFileError, is_directory, reads
from speclaunch.engine.facts.checkpoint_file import file_of
from speclaunch.engine.facts.known_models import HUB_NAME

FOLDER = Path(".speclaunch", "models")
"""Below the directory of the recipes, or one above it."""
_MOST_FILES = 10_000
"""Of a folder, when all are listed."""


def models_folders(start: Path) -> tuple[Path, ...]:
    """Every `.speclaunch/models` from `start` (a file, or a directory) upward, nearest first.

    The search ends with the repository (the directory that holds `.git`: a directory, or the file
    of a worktree or submodule), as ruff's and git's own does; outside of one with the home
    directory, else with the root of the file system. The directory is resolved, and a file that
    is a link counts where it stands. Never raises.
    """
    return tuple(
        directory / FOLDER for directory in upward(start) if is_directory(directory / FOLDER)
    )


def facts_file(folders: Iterable[Path], name: str) -> Path | None:
    """The file of the checkpoint `name` in the first folder that has one; None: in none.

    Raises UnreadableFileError where it, or the folder, is a link that leads out of the folder.
    """
    for folder in folders:
        path = file_of(folder, name)
        if path is not None and reads.lexists(path):
            refuse_a_way_out(folder, path)
            return path
    return None


def kept_names(folder: Path) -> Iterator[str]:
    """The names of the checkpoints whose files stand in a folder, sorted; links are not followed
    into other directories. At most 10,000."""
    found: list[str] = []
    try:
        for entry in sorted(folder.iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                found += sorted(f"{entry.name}/{file.name}" for file in entry.iterdir())
            else:
                found.append(entry.name)
            if len(found) > _MOST_FILES:
                break
    except OSError:
        pass
    for name in found[:_MOST_FILES]:
        model = name.removesuffix(".json")
        if model != name and HUB_NAME.match(model):
            yield model


def refuse_a_way_out(folder: Path, path: Path) -> None:
    """Raise UnreadableFileError where following links from a path below `folder` leads out of it.

    A folder `.speclaunch/models` is taken as it is written: neither part of it may be a link.
    """
    try:
        if folder.parts[-2:] == FOLDER.parts:
            base = reads.resolve(folder.parent.parent) / FOLDER
        else:  # one that the user named
            base = reads.resolve(folder)
        inside = reads.resolve(path).is_relative_to(base)
    except (OSError, RuntimeError, ValueError):  # RuntimeError: a circle of links
        inside = False
    if not inside:
        raise UnreadableFileError(f"{path} is a link out of {FOLDER}: put the file itself there")


def is_outside(folder: Path, path: Path) -> bool:
    """True if a path, without its links, lies outside of the project of a directory.

    The project is the repository. Without one it is the directory, and the working directory if
    that contains it.
    """
    try:
        real, own = reads.resolve(path), _directory(folder)
        here = reads.resolve(Path())
    except (OSError, RuntimeError, ValueError):
        return True
    repository = next((one for one in upward(folder) if reads.lexists(one / ".git")), None)
    root = repository or (here if own.is_relative_to(here) else own)
    return not real.is_relative_to(root)


def home_of_facts(start: Path) -> Path:
    """Where `models pull` keeps what it finds for a recipe at `start`: the nearest folder from
    there upward, else a new `.speclaunch/models` beside it. Nothing is made here."""
    found = models_folders(start)
    return found[0] if found else _directory(start) / FOLDER


def _directory(start: Path) -> Path:
    """The directory of a file, without links."""
    return reads.resolve(start if is_directory(start) else start.parent)


def upward(start: Path) -> Iterator[Path]:
    """The directory of `start` and those above it, as far as its repository goes."""
    try:
        own = _directory(start)
    except (OSError, RuntimeError, ValueError):
        return
    home = reads.realpath(os.path.expanduser("~"))  # noqa: PTH111  Path's own raises without one
    for directory in (own, *own.parents):
        yield directory
        if str(directory) == home or reads.lexists(directory / ".git"):
            return


def project_root(directory: Path) -> str:
    """The repository that a directory is part of, else the directory itself, without links."""
    own = reads.realpath(str(directory))
    for folder in (own, *map(str, Path(own).parents)):
        if reads.lexists(f"{folder}/.git"):
            return folder
    return own
