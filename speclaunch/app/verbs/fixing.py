"""Fixes in `speclaunch lint`: `--fix`, `--unsafe-fixes`, `--diff`, and edits in output formats."""

from __future__ import annotations

import contextlib
import sys
from functools import cache

from msgspec import Struct

from speclaunch.app.output.console import Printer, err_lines, write_exact
from speclaunch.app.output.formats import Edits, touched
from speclaunch.app.output.problems import show_problems
from speclaunch.app.verbs.shared import show_patch
from speclaunch.checks import (
    STDIN_SHOWN,
    FileEdits,
    FixedFile,
    LintRun,
    NotFixableError,
    Report,
    ReportedFinding,
    Severity,
    check,
    counted,
    edits_of,
    fixable_paths,
    fixed_files,
    in_bytes,
    independent_files,
    shown_diff,
    written,
)
from speclaunch.core import ExitCode, InputError, Problem, lazy, masked

_SECRET = lazy(
    r"(?i)key|token|secret|passw|credential|auth|cookie|dsn|webhook|_pat|conn_?str|://|;"
)
"""Pattern found in every file that contains a secret; other files are not searched for secrets."""


class Fixes(Struct):
    """Fixed files and problems. `stdin`: the text of standard input after the fixes."""

    files: list[FixedFile] = []
    problems: list[Problem] = []
    stdin: bytes | None = None

    @property
    def would_change(self) -> bool:
        return any(file.is_changed for file in self.files)

    @property
    def has_left(self) -> bool:
        """True if a requested fix for a finding above INFO was not applied."""
        left = (fix.finding for file in self.files for fix in file.left)
        return any(finding.severity is not Severity.INFO for finding in left)


def fix_found(report: Report, run: LintRun, *, unsafe: bool, only_shown: bool) -> Fixes:
    """Fix and write the files of a report, or print the diff (`only_shown`); return the results."""
    done = Fixes(stdin=run.stdin)
    paths = fixable_paths(report, unsafe=unsafe)
    made = fixed_files(paths, run, unsafe=unsafe, independent=independent_files(report))
    for fixed, before in made:
        done.files.append(fixed)
        if not fixed.is_changed:
            continue
        if only_shown:
            show_patch(shown_diff(fixed.before, fixed.after, fixed.path, fixed.hidden()))
        elif fixed.path == STDIN_SHOWN:
            done.stdin = in_bytes(fixed, before)
        else:
            try:
                written(fixed, before)
            except InputError as error:
                done.problems += error.problems
                done.files.pop()
    return done


def tell(done: Fixes, report: Report, printer: Printer, *, only_shown: bool = False) -> None:
    """Print each applied fix, each unapplied fix with the reason, and the counts."""
    would = "would fix" if only_shown else "fixed"
    for file in done.files:
        for finding in file.applied:
            text = masked(finding.fix.done) if finding.fix is not None else ""
            printer.print(f"{would} {finding.code} {finding.place}: {text}")
    for file in done.files:
        for left in file.left:
            why = masked(left.why)
            printer.print(f"left {left.finding.code} {left.finding.place}: {why}")
    summary = counted(done.files, report)
    if summary:
        printer.print(summary.replace(" fixed", " would be fixed", 1) if only_shown else summary)
    show_problems(err_lines(), done.problems)


def code_of(done: Fixes, *, only_shown: bool) -> ExitCode:
    """Return USAGE for unwritable files, FAILED if requested fixes remain, else CLEAN."""
    if done.problems:
        return ExitCode.USAGE
    failed = done.would_change if only_shown else done.has_left
    return ExitCode.FAILED if failed else ExitCode.CLEAN


def put_stdin(done: Fixes) -> None:
    """Write the fixed text of standard input to standard output."""
    text = done.stdin or b""
    with contextlib.suppress(UnicodeDecodeError):
        write_exact(text.decode())
        return
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()


def edits_in(run: LintRun, report: Report) -> Edits:
    """Return a function that maps a finding to its edits and reads each file only once."""
    versions: dict[str, set[str]] = {}
    for file in report.files:
        versions.setdefault(file.path, set()).add(file.engine)
    read = cache(run.read_again)

    def edits(reported: ReportedFinding) -> FileEdits | None:
        fix, finding = reported.finding.fix, reported.finding
        # a group shared by many recipes is not edited for one of them
        if fix is None or fix.applicability is None or len(reported.files) != 1:
            return None
        path = reported.files[0]
        source, settings = read(path)
        if source is None:  # deleted since
            return None
        try:
            made = edits_of(
                source, finding, settings.config_dirs, versions[path] - {finding.engine}
            )
        except NotFixableError:
            return None
        return None if any(secret in touched(made) for secret in secrets(path)) else made

    @cache
    def secrets(path: str) -> list[str]:
        source, settings = read(path)
        if source is None or _SECRET.search(source.text) is None:
            return []

        return check(source, run.options(settings)).secrets

    return edits
