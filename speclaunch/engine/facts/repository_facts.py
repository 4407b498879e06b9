"""Checkpoint facts that a team stores: `.speclaunch/models/` next to its recipes, or above.

A repository is untrusted: no name or link in it may lead out of that folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from speclaunch.core import UnreadableFileError, is_directory, reads
from speclaunch.engine.facts.checkpoint_file import file_of
from speclaunch.engine.facts.known_models import HUB_NAME

FOLDER = Path(".speclaunch", "models")
"""Folder below the directory of the recipes, or below a parent directory."""
_MOST_FILES = 10_000
"""Maximum number of files listed in a folder."""


def models_folders(start: Path) -> tuple[Path, ...]:
    """Return every `.speclaunch/models` from `start` (a file or directory) upward, nearest first.

    The search ends at the repository, as in ruff and git: the directory that contains `.git` (a
    directory, or the file of a worktree or submodule). Outside a repository it ends at the home
    directory, else at the file system's root. The directory is resolved; for a linked file, the
    location of the link counts. Never raises.
    """
    return tuple(
        directory / FOLDER for directory in upward(start) if is_directory(directory / FOLDER)
    )


def facts_file(folders: Iterable[Path], name: str) -> Path | None:
    """Return the file of checkpoint `name` in the first folder that has one; None if none has.

    Raises UnreadableFileError if the file or the folder is a link that leads out of the folder.
    """
    for folder in folders:
        path = file_of(folder, name)
        if path is not None and reads.lexists(path):
            refuse_a_way_out(folder, path)
            return path
    return None


def stored_names(folder: Path) -> Iterator[str]:
    """Yield the names of the checkpoints stored in a folder, sorted, at most 10,000.

    Does not follow links to other directories.
    """
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
    """Raise UnreadableFileError if links in a path below `folder` lead out of it.

    Neither `.speclaunch` nor `models` may be a link.
    """
    try:
        if folder.parts[-2:] == FOLDER.parts:
            base = reads.resolve(folder.parent.parent) / FOLDER
        else:  # named by the user
            base = reads.resolve(folder)
        inside = reads.resolve(path).is_relative_to(base)
    except (OSError, RuntimeError, ValueError):  # RuntimeError: cyclic links
        inside = False
    if not inside:
        raise UnreadableFileError(f"{path} links outside {FOLDER}: replace the link with the file")


def is_outside(folder: Path, path: Path) -> bool:
    """True if a path, with links resolved, is outside the project of a directory.

    The project is the repository. Without a repository it is the directory, plus the working
    directory if the latter contains the directory.
    """
    try:
        real, own = reads.resolve(path), _directory(folder)
        here = reads.resolve(Path())
    except (OSError, RuntimeError, ValueError):
        return True
    repository = next((parent for parent in upward(folder) if reads.lexists(parent / ".git")), None)
    root = repository or (here if own.is_relative_to(here) else own)
    return not real.is_relative_to(root)


def home_of_facts(start: Path) -> Path:
    """Return the folder in which `models pull` saves facts for a recipe at `start`.

    This is the nearest existing folder upward, else a new `.speclaunch/models` next to the recipe.
    Does not create it.
    """
    found = models_folders(start)
    return found[0] if found else _directory(start) / FOLDER


def _directory(start: Path) -> Path:
    return reads.resolve(start if is_directory(start) else start.parent)


def upward(start: Path) -> Iterator[Path]:
    """Yield the directory of `start` and its parents, up to the repository's root."""
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
    """Return the root of a directory's repository, else the directory itself, with links
    resolved."""
    own = reads.realpath(str(directory))
    for folder in (own, *map(str, Path(own).parents)):
        if reads.lexists(f"{folder}/.git"):
            return folder
    return own
