"""Files excluded below a directory: by Git or by configuration.

Like ruff and ripgrep, this module reads the `.gitignore` files from a directory up to the top of
the work tree, and `.git/info/exclude`. Outside a work tree, no Git patterns apply. Files named
explicitly are always included.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from speclaunch.core import InputError, read_regular
from speclaunch.engine import ProjectSettings

_IGNORE = ".gitignore"

Above = Callable[[str], tuple[Path, ProjectSettings]]
"""Function from a directory to its resolved path and the project settings that apply to it."""


class LeftOut:
    """Exclusion rules for the directories on the command line."""

    def __init__(
        self, above: Above | None = None, exclude: Sequence[str] = (), *, by_git: bool = True
    ) -> None:
        self._above, self._by_git = above, by_git
        self._exclude = _made(os.path.realpath("."), tuple(exclude)) if exclude else None

    def below(self, top: str) -> Below:
        resolved = os.path.realpath(top)
        return Below(self, resolved, by_git=self._by_git)

    def excluded(self, directory: str) -> list[Patterns]:
        found = [] if self._exclude is None else [self._exclude]
        project = self._above(directory)[1] if self._above is not None else None
        if project is not None and project.exclude is not None:
            texts = tuple(pattern.text for pattern in project.exclude.patterns)
            found.append(_made(str(project.exclude.folder), texts))
        return found

    def is_excluded(self, path: str) -> bool:
        """True if a file named by a program, not by the user, is excluded.

        Git's ignore rules do not apply, because files can be added to Git despite them.
        """
        resolved = os.path.realpath(path)
        excluded = self.excluded(os.path.dirname(resolved))  # noqa: PTH120
        return any(exclusion.match(resolved) for exclusion in excluded)


class Below:
    """Exclusions below one directory, queried from the top down."""

    def __init__(self, rules: LeftOut, top: str, *, by_git: bool) -> None:
        self._rules, self._top, self._by_git = rules, top, by_git
        self._git: dict[str, list[Patterns] | None] = {}
        """Git patterns by directory; None: outside of work trees."""

    def filtered(
        self, directory: str, names: Sequence[str], files: Sequence[str]
    ) -> tuple[list[str], list[str]]:
        """Return a directory's subdirectories and files that are not excluded."""
        resolved = os.path.realpath(directory)
        git = self._of(resolved, files)
        excluded = [  # an excluded directory that is named explicitly is included
            exclusion
            for exclusion in self._rules.excluded(resolved)
            if not exclusion.match(self._top, is_directory=True)
        ]
        if not git and not excluded:
            return list(names), list(files)

        def is_included(name: str, is_directory: bool) -> bool:
            path = f"{resolved.rstrip(os.sep)}{os.sep}{name}"
            if any(exclusion.match(path, is_directory=is_directory) for exclusion in excluded):
                return False
            for exclusion in reversed(git):  # the nearest file that decides
                is_ignored = exclusion.decides(path, is_directory=is_directory)
                if is_ignored is not None:
                    return not is_ignored
            return True

        return [n for n in names if is_included(n, True)], [
            n for n in files if is_included(n, False)
        ]

    def _of(self, directory: str, files: Sequence[str]) -> list[Patterns]:
        if not self._by_git:
            return []
        if directory == self._top:
            found = _git_above(directory)
        elif os.path.lexists(f"{directory}/.git"):  # another repository: nothing above it applies
            found = _from(f"{directory}/.git", directory)
        else:
            found = self._git[os.path.dirname(directory)]  # noqa: PTH120
        if found is not None and _IGNORE in files:
            found = [*found, *_own(directory)]
        self._git[directory] = found
        return found or []


def _git_above(directory: str) -> list[Patterns] | None:
    """Return the Git patterns above a directory; None outside work trees.

    Empty if they ignore the directory itself, because the user named it.
    """
    folders = [directory, *map(str, Path(directory).parents)]
    top = next((n for n, folder in enumerate(folders) if os.path.lexists(f"{folder}/.git")), None)
    if top is None:
        return None
    found = _from(f"{folders[top]}/.git", folders[top])
    for number in range(top, 0, -1):
        found += _own(folders[number])
        child = folders[number - 1]
        decisions = [exclusion.decides(child, is_directory=True) for exclusion in reversed(found)]
        if next((decision for decision in decisions if decision is not None), False):
            return []
    return found


def _own(directory: str) -> list[Patterns]:
    return _read(f"{directory}/{_IGNORE}", directory)


def _from(git: str, top: str) -> list[Patterns]:
    """Return the patterns of `info/exclude`, which also applies to linked work trees."""
    if os.path.isfile(git):  # noqa: PTH113
        try:
            gitdir = read_regular(git).decode().partition("gitdir:")[2].strip()
            own = os.path.join(top, gitdir)  # noqa: PTH118
            common = read_regular(f"{own}/commondir").decode().strip()
            git = os.path.join(own, common)  # noqa: PTH118
        except (OSError, ValueError):
            return []
    return _read(f"{git}/info/exclude", top)


def _read(path: str, folder: str) -> list[Patterns]:
    try:
        texts = read_regular(path).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    texts = [text for text in texts if text.strip() and not text.startswith("#")]
    return [_made(folder, tuple(texts))] if texts else []


@cache
def _made(folder: str, texts: tuple[str, ...]) -> Patterns:
    try:
        return Patterns(folder, texts)
    except InputError:  # Git ignores a line that it cannot parse
        good = tuple(text for text in texts if _is_pattern(text))
        return Patterns(folder, good)


def _is_pattern(text: str) -> bool:
    try:
        patterns((text,))
    except InputError:
        return False
    return True


_ALL, _ALL_DIRECTORIES = ".", "(?P<ps_d>/)"
"""Regular expressions that pathspec makes from `*` and `**/`."""


class Patterns:
    """Patterns relative to a directory, whose path is absolute and has no links."""

    def __init__(self, folder: str, texts: Sequence[str]) -> None:
        self.folder = folder.rstrip(os.sep) + os.sep
        self._spec = patterns(texts)

    def decides(self, path: str, *, is_directory: bool = False) -> bool | None:
        """True if the patterns exclude an absolute path, False if they include it again, else None.

        As in Git, callers check from the top down and skip excluded directories.
        """
        below = self._below(path, is_directory)
        if below is None:
            return None
        for pattern in reversed(self._spec.patterns):
            if pattern.include is None:
                continue
            found = pattern.match_file(below)
            if found is not None and (
                found.match.end() == len(below)  # otherwise a directory above it matches
                or pattern.regex.pattern == _ALL
                or (pattern.regex.pattern == _ALL_DIRECTORIES and is_directory)
            ):
                return bool(pattern.include)
        return None

    def match(self, path: str, *, is_directory: bool = False) -> bool:
        """True if an absolute path matches, itself or through a directory above it."""
        below = self._below(path, is_directory)
        return below is not None and bool(self._spec.match_file(below))

    def _below(self, path: str, is_directory: bool) -> str | None:
        if not path.startswith(self.folder):
            return None
        return path[len(self.folder) :].replace(os.sep, "/") + "/" * is_directory


def patterns(texts: Sequence[str]) -> Any:
    """Return the compiled patterns. Raises InputError for an invalid pattern."""
    from pathspec import GitIgnoreSpec  # noqa: PLC0415  slow to import, and not always needed

    # `x/**` means everything below x, but pathspec also matches x itself
    texts = [f"{text.rstrip()}/*" if text.rstrip().endswith("/**") else text for text in texts]
    try:
        return GitIgnoreSpec.from_lines(texts)
    except ValueError as error:
        raise InputError(f"invalid pattern {', '.join(texts)}: {error}") from None
