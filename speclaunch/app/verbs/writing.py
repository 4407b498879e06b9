"""Shared checks and output of verbs that write files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from speclaunch.app.output.console import err, err_lines, write_exact
from speclaunch.app.output.findings import show_findings
from speclaunch.core import InputError, Problem, SpeclaunchError, redact

if TYPE_CHECKING:
    from speclaunch.checks import OutputCheck, ShownDiff


class OutputRefusedError(SpeclaunchError):
    """Error if the rules find errors in an output (exit code 1)."""


def require_sound(check: OutputCheck, what: str, *, force: bool) -> None:
    """Show the findings of an output on standard error.

    Raises OutputRefusedError for new errors, unless `force`.
    """
    show_findings(err(), [*check.warnings, *check.inherited, *check.errors])
    if check.inherited:
        count = _errors(len(check.inherited))
        err().print(f"{what}: {count} already in its source", markup=False)
    if not check.errors:
        return
    count = _errors(len(check.errors))
    if force:
        err().print(f"--force: {what} is written despite {count}", style="bold red", markup=False)
        return
    raise OutputRefusedError(
        Problem(
            f"{what} was not written: {count}",
            help="fix them, or write it anyway with --force",
        )
    )


def require_free(path: Path, *, overwrite: bool) -> None:
    """Raise InputError for a file that exists, unless `overwrite`."""
    if (path.exists() or path.is_symlink()) and not overwrite:
        raise InputError(Problem(f"{path} already exists", help="replace it with --overwrite"))


def write_result(path: Path, text: str) -> None:
    """Write a result to a file with secrets redacted, and report it. Raises InputError."""
    from speclaunch.checks import write_atomically

    write_atomically(path, redact(text))
    err_lines().print(f"wrote {path}", markup=False)


def show_patch(shown: ShownDiff) -> None:
    """Print the diff of a file, and on standard error the number of secrets hidden in it."""
    write_exact(shown.text)
    if shown.hidden:
        values = "value is" if shown.hidden == 1 else "values are"
        note = f"{shown.hidden} secret {values} hidden (***): the patch does not apply"
        err_lines().print(note, markup=False)


def _errors(count: int) -> str:
    return f"{count} error{'s' * (count > 1)}"
