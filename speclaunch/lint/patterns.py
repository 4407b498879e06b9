"""Patterns of paths as `.gitignore` has them: for `exclude`, for settings by path, for Git's own.

They are pathspec's to read; it is imported where there is a pattern.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from speclaunch.errors import InputError, Problem

_ALL, _ALL_DIRECTORIES = ".", "(?P<ps_d>/)"
"""What pathspec makes of `*` and `**/`: a match that is no longer than that."""


class Patterns:
    """Some patterns, counted from an absolute directory without links."""

    def __init__(self, folder: str, texts: Sequence[str]) -> None:
        self.folder = folder.rstrip(os.sep) + os.sep
        self._spec = patterns(texts)

    def decides(self, path: str, *, is_directory: bool = False) -> bool | None:
        """Whether an absolute path is meant itself, as Git asks from the top down: what lies in a
        directory that is meant is not asked. None where no pattern says anything of it."""
        below = self._below(path, is_directory)
        if below is None:
            return None
        for one in reversed(self._spec.patterns):
            if one.include is None:
                continue
            found = one.match_file(below)
            if found is not None and (
                found.match.end() == len(below)  # else it is a directory above that is meant
                or one.regex.pattern == _ALL
                or (one.regex.pattern == _ALL_DIRECTORIES and is_directory)
            ):
                return bool(one.include)
        return None

    def match(self, path: str, *, is_directory: bool = False) -> bool:
        """Whether an absolute path is meant, itself or as a part of a directory."""
        below = self._below(path, is_directory)
        return below is not None and bool(self._spec.match_file(below))

    def _below(self, path: str, is_directory: bool) -> str | None:
        if not path.startswith(self.folder):
            return None
        return path[len(self.folder) :].replace(os.sep, "/") + "/" * is_directory


def patterns(texts: Sequence[str]) -> Any:
    """What pathspec makes of patterns. Raises InputError for one that is none."""
    from pathspec import GitIgnoreSpec  # noqa: PLC0415  slow to import, and not always needed

    # `x/**` is all below x, and not x itself, for which pathspec takes it
    texts = [f"{one.rstrip()}/*" if one.rstrip().endswith("/**") else one for one in texts]
    try:
        return GitIgnoreSpec.from_lines(texts)
    except ValueError as error:
        raise InputError(Problem(f"{', '.join(texts)}: not a pattern: {error}")) from None
