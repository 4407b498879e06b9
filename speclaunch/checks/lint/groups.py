"""Check files of Hydra groups through the recipes that select them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from speclaunch.checks.lint.configuration import FoundFile, find_files, has_package
from speclaunch.checks.lint.report import FileReport, FileResult
from speclaunch.core import SpeclaunchError, read_or_none, reads
from speclaunch.engine import held_versions, upward

if TYPE_CHECKING:
    from speclaunch.checks.lint.left_out import LeftOut
    from speclaunch.checks.lint.report import CheckedFile
    from speclaunch.checks.rules.interface import Finding

_SUFFIX = ".yaml"
"""The only suffix that Hydra accepts."""


def is_group(file: FoundFile) -> bool:
    """True if a file is an option of a Hydra group."""
    return file.path.endswith(_SUFFIX) and has_package(_text(file.path))


def recipes_with(
    group: str,
    config_dirs: Callable[[str], tuple[Path, ...]],
    left_out: Callable[[], LeftOut] | None,
) -> Iterator[FoundFile]:
    """Yield the recipes that choose a group's file.

    The entire repository is searched only if no recipe is found below the parent of the groups
    directory.
    """
    path = Path(os.path.realpath(group))
    for top in _tops(path):
        shown = os.path.relpath(top)
        chosen = False
        for file in find_files([shown], left_out):
            if file.path.endswith(_SUFFIX) and _chooses(file.path, path, config_dirs):
                chosen = True
                yield file
        if chosen:
            return


def _tops(path: Path) -> tuple[Path, ...]:
    """Return the directories to search for recipes.

    The search never leaves the repository, because the directories above may be unrelated and huge.
    Without a repository, only the groups directory is searched.
    """
    top, nearby = _repository(path), path.parent.parent.parent
    if top is None:
        return (path.parent.parent,)
    return (top,) if nearby == top or not nearby.is_relative_to(top) else (nearby, top)


def _repository(path: Path) -> Path | None:
    """Return the top directory of a file's repository; None outside repositories."""
    top = list(upward(path))[-1:]
    return top[0] if top and reads.lexists(top[0] / ".git") else None


def _chooses(recipe: str, group: Path, config_dirs: Callable[[str], tuple[Path, ...]]) -> bool:
    text = _text(recipe)
    if group.stem not in text or "defaults" not in text or has_package(text):
        return False
    from speclaunch.deployments import compose  # noqa: PLC0415  only for possible recipes

    try:
        named = recipe if "/" in recipe else f"./{recipe}"
        files = compose(named, (), config_dirs(recipe)).files
    except SpeclaunchError:  # not a recipe, or reported when it is linted
        return False
    return any(os.path.realpath(file) == str(group) for file in files)


def has_ignores(group: str) -> bool:
    """True if a group's file may contain ignore comments."""
    return "speclaunch:" in _text(group)


def unused_in(
    group: str, checked: Iterable[CheckedFile], selected: frozenset[str] | None
) -> tuple[Finding, ...]:
    """Return findings about a group's ignore comments. A comment is used if any recipe uses it.

    `selected`: the codes that were checked; None for all.
    """
    from speclaunch.checks.lint.collect import complaints, read_ignores  # noqa: PLC0415

    resolved = os.path.realpath(group)
    own = read_ignores(_text(group), group)
    for file in checked:
        for other in file.ignores:
            if os.path.realpath(other.place.path) == resolved:
                for ignore in own:
                    if ignore.place.line == other.place.line:
                        ignore.used |= other.used
    return tuple(complaints(own, group, held_versions()[-1], selected))


def result_of_group(
    group: str, recipes: Iterable[FileResult], more: tuple[Finding, ...] = ()
) -> FileResult:
    """Return the result of a group's file: its recipes' findings about it, and `more`.

    Without recipes or `more`, the file is reported as not checked.
    """
    resolved = os.path.realpath(group)
    reports = [_of_group(report, resolved) for recipe in recipes for report in recipe.reports]
    if not reports:
        why = None if more else "no recipe selects it"
        reports = [FileReport(group, held_versions()[-1], skipped=why)]
    if more:
        reports[0] = replace(reports[0], findings=(*reports[0].findings, *more))
    return FileResult(group, tuple(reports))


def _of_group(report: FileReport, group: str) -> FileReport:
    there = {
        path: os.path.realpath(path) == group for path in {f.place.path for f in report.findings}
    }
    findings = tuple(finding for finding in report.findings if there[finding.place.path])
    return replace(
        report, findings=findings, skipped_rules=(), checkpoints=(), unknown=(), unreadable=False
    )


def _text(path: str) -> str:
    return (read_or_none(path) or b"").decode("utf-8", "replace")
