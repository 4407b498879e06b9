"""The edits of fixes, for formats that tell them: nothing is written here."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from speclaunch.fixing.findings import FileEdits, NotFixableError, fixed
from speclaunch.lint.collect import LintedFile, read_found
from speclaunch.lint.lint_files import Files
from speclaunch.lint.paths import STDIN, STDIN_SHOWN, FoundFile
from speclaunch.lint.report import Report
from speclaunch.lint.told_once import Told
from speclaunch.patterns import lazy
from speclaunch.report.formats.interface import Edits, touched

_SECRET = lazy(
    r"(?i)key|token|secret|passw|credential|auth|cookie|dsn|webhook|_pat|conn_?str|://|;"
)
"""What is in the name of every argument and variable whose value is one."""


def edits_in(files: Files, report: Report) -> Edits:
    """What the fix of a finding of a report makes of its file; a file is read when it is asked."""
    versions: dict[str, set[str]] = {}
    for file in report.files:
        versions.setdefault(file.path, set()).add(file.engine)

    @cache
    def read(path: str) -> tuple[LintedFile | None, tuple[Path, ...]]:
        found = FoundFile(STDIN if path == STDIN_SHOWN else path, is_named=True)
        folders = tuple(files.settings(found.path).config_dirs)
        return read_found(found, files.stdin, folders), folders

    def edits(one: Told) -> FileEdits | None:
        fix, finding = one.finding.fix, one.finding
        # what many recipes share through a group is no matter of one of them
        if fix is None or fix.applicability is None or len(one.files) != 1:
            return None
        path = one.files[0]
        source, folders = read(path)
        if source is None:  # it is gone
            return None
        try:
            made = fixed(source, finding, folders, versions[path] - {finding.engine})
        except NotFixableError:
            return None
        return None if any(one in touched(made) for one in secrets(path)) else made

    @cache
    def secrets(path: str) -> list[str]:
        source, _ = read(path)
        if source is None or _SECRET.search(source.text) is None:
            return []
        from speclaunch.lint.run import check

        settings = files.settings(STDIN if path == STDIN_SHOWN else path)
        return check(source, files.options(settings)).secrets

    return edits
