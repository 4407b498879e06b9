"""Fix many files, one after the other, and write the new texts."""

from __future__ import annotations

import codecs
import pickle
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from speclaunch.checks.edit.edits import write_atomically
from speclaunch.checks.edit.fix_file import FixedFile, fix_file
from speclaunch.checks.lint.lint_files import LintRun
from speclaunch.checks.lint.paths import STDIN_SHOWN
from speclaunch.checks.lint.report import Report
from speclaunch.checks.lint.run import check
from speclaunch.checks.lint.workers import WorkerDiedError, spread
from speclaunch.checks.rules.finding import Applicability
from speclaunch.core import InputError, Problem, read_or_none

_FIXES_A_PROCESS = 8
"""Minimum number of files for each process; with fewer, a process costs more than it saves."""


def fixable_paths(report: Report, *, unsafe: bool) -> list[str]:
    """Return the files with findings whose fixes are requested, without duplicates, in order."""
    requested = {Applicability.SAFE, Applicability.UNSAFE} if unsafe else {Applicability.SAFE}
    return list(
        dict.fromkeys(
            file.path
            for file in report.files
            for finding in file.findings
            if finding.fix is not None and finding.fix.applicability in requested
        )
    )


def independent_files(report: Report) -> frozenset[str]:
    """Return the files whose findings are all in the file itself, not in a group or `--config`
    file."""
    elsewhere = {
        file.path
        for file in report.files
        for finding in file.findings
        if finding.place.path != file.path
    }
    return frozenset(file.path for file in report.files if file.path not in elsewhere)


def fixed_files(
    paths: Sequence[str], run: LintRun, *, unsafe: bool, independent: frozenset[str]
) -> Iterator[tuple[FixedFile, bytes]]:
    """Yield each file with its fixes, and its original bytes; nothing is written.

    `independent`: files that depend on no other file; several processes may fix them in parallel.
    """
    alone = [path for path in paths if path in independent]
    processes = min(run.processes(len(paths), _FIXES_A_PROCESS), len(alone))
    made = _fixed_in_processes(alone, run, processes, unsafe=unsafe) if processes > 1 else {}
    for path in paths:
        found = made[path] if path in made else _fixed(path, run, unsafe=unsafe)
        if found is not None:
            yield found


_Fixed = tuple[FixedFile, bytes]


def _fixed(path: str, run: LintRun, *, unsafe: bool) -> _Fixed | None:
    source, settings = run.read_again(path)
    data = run.stdin if path == STDIN_SHOWN else read_or_none(path)
    if source is None or data is None or _text(data) != source.text:
        return None  # it is gone, or changed during the fix
    return fix_file(source, run.options(settings), settings.config_dirs, unsafe=unsafe), data


def _fixed_in_processes(
    paths: Sequence[str], run: LintRun, processes: int, *, unsafe: bool
) -> dict[str, _Fixed | None]:
    """Fix files in several processes, all before anything is written, so that the result does not
    depend on timing. A file whose process failed is left out."""

    def work(path: str) -> bytes:
        found = _fixed(path, run, unsafe=unsafe)
        if found is None:
            return b""
        found[0].hidden = list  # only called in the parent process
        return pickle.dumps(found)

    made: dict[str, _Fixed | None] = {}
    with spread(paths, work, processes) as answers:
        for path, answer in zip(paths, answers, strict=True):
            if isinstance(answer, WorkerDiedError):
                made[path] = None  # lint reports it
            elif answer is not None:
                file, data = pickle.loads(answer)  # noqa: S301  written by a fork of this process
                file.hidden = partial(_secrets, path, run)
                made[path] = file, data
    return made


def _secrets(path: str, run: LintRun) -> Sequence[str]:
    source, settings = run.read_again(path)
    return [] if source is None else check(source, run.options(settings)).secrets


def written(fixed: FixedFile, before: bytes) -> None:
    """Replace the old text with the new one atomically, unless the file changed meanwhile.

    Links, a byte order mark and the mode are preserved. Raises InputError.
    """
    path = Path(fixed.path)
    if read_or_none(fixed.path) != before:
        message = f"{fixed.path} changed while it was being fixed"
        raise InputError(Problem(message, help="run it again"))
    mark = codecs.BOM_UTF8.decode() if before.startswith(codecs.BOM_UTF8) else ""
    write_atomically(path.resolve(), mark + fixed.after)


def in_bytes(fixed: FixedFile, before: bytes) -> bytes:
    """Return the new text in UTF-8, with a byte order mark if the file had one."""
    mark = codecs.BOM_UTF8 if before.startswith(codecs.BOM_UTF8) else b""
    return mark + fixed.after.encode()


def _text(data: bytes) -> str | None:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def counted(files: Sequence[FixedFile], report: Report) -> str:
    """Return `3 fixed, 2 left (1 fix is unsafe: --unsafe-fixes)`; empty if there was nothing to
    fix.

    `report` includes the files without fixes.
    """
    fixed = sum(len(file.applied) for file in files)
    unsafe = sum(len(file.unsafe) for file in files)
    looked_at = {file.path for file in files}
    unsafe += sum(
        finding.fix is not None and finding.fix.applicability is Applicability.UNSAFE
        for file in report.files
        if file.path not in looked_at
        for finding in file.findings
    )
    left = sum(len(file.left) for file in files) + unsafe
    if not fixed and not left:
        return ""
    hint = ""
    if unsafe:
        fixes = "1 fix is" if unsafe == 1 else f"{unsafe} fixes are"
        hint = f" ({fixes} unsafe: --unsafe-fixes)"
    return f"{fixed} fixed, {left} left{hint}"
