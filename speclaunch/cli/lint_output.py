"""Where `lint` writes what it found, and in which formats."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from speclaunch.cli.formats import LintFormat
from speclaunch.errors import InputError, Problem
from speclaunch.printable import printable
from speclaunch.record import record
from speclaunch.redaction import redact
from speclaunch.report.console import err_lines, out_lines, write_commands
from speclaunch.report.formats import format_named
from speclaunch.report.formats.interface import Format, Told

_WITH_EDITS = frozenset({LintFormat.SARIF, LintFormat.RDJSON})


@record
class Output:
    """What goes to standard output, and what into files."""

    shown: LintFormat
    files: tuple[tuple[Path, LintFormat], ...] = ()
    annotates: bool = False
    """Whether GitHub's annotations are written behind the text."""

    @property
    def exits_zero(self) -> bool:
        """Whether findings leave the exit code at 0, unless asked otherwise."""
        return format_named(self.shown).exits_zero

    @property
    def has_edits(self) -> bool:
        """Whether a format is asked for that tells the edits of fixes."""
        return not _WITH_EDITS.isdisjoint((self.shown, *(name for _, name in self.files)))

    def write(self, told: Told) -> None:
        """Write everything. Raises InputError for a file that cannot be written."""
        self._show(told)
        written: dict[LintFormat, str] = {}
        for path, name in self.files:
            if name not in written:
                written[name] = printable(redact(format_named(name).text(told)))
            _write(path, written[name])

    def _show(self, told: Told) -> None:
        shown = format_named(self.shown)
        if not self.annotates and self.shown is not LintFormat.GITHUB:
            commands = self.shown is LintFormat.AZURE
            write = write_commands if commands else lambda text: _print(sys.stdout, text)
            shown.show(told, out_lines(), write)
            return
        from speclaunch.report.formats.github import add_summary, without_commands

        if self.annotates:
            write_commands(without_commands(shown.text(told)))
        write_commands(_github().text(told))
        try:
            add_summary(told)
        except (OSError, ValueError) as error:  # what was found counts, and is told
            reason = getattr(error, "strerror", None) or error
            err_lines().print(f"warning: cannot write the summary of the job: {reason}")


def output(shown: LintFormat | None, files: Sequence[str], linted: Sequence[str] = ()) -> Output:
    """What is asked for; on GitHub Actions annotations, too, unless a format is named.

    Raises InputError for a file that says no format, whose directory does not exist, that is
    `linted` itself, or that is named twice.
    """
    annotates = False
    if shown is None:
        import os

        annotates = os.environ.get("GITHUB_ACTIONS") == "true"
    written = tuple(map(_file, files))
    taken = {Path(path).resolve() for path in linted if path != "-"} if files else set()
    for path, _ in written:
        if path.resolve() in taken and (path.is_file() or not path.exists()):
            raise InputError(Problem(f"--output-file {path}: it is linted, or named twice"))
        taken.add(path.resolve())
    return Output(shown or LintFormat.TEXT, written, annotates)


_SUFFIXES = {
    ".json": LintFormat.JSON,
    ".sarif": LintFormat.SARIF,
    ".txt": LintFormat.TEXT,
    ".xml": LintFormat.JUNIT,
}


def _github() -> Format:
    return format_named(LintFormat.GITHUB)


def _file(said: str) -> tuple[Path, LintFormat]:
    name, _, file = said.partition("=")
    if not file and Path(said).suffix in _SUFFIXES:
        name, file = _SUFFIXES[Path(said).suffix], said
    if name not in set(LintFormat) or not file:
        by_suffix = {f".{one}": one for one in LintFormat}
        likely = by_suffix.get(Path(said).suffix, LintFormat.JSON)
        example = f"{likely}={said if said and '=' not in said else f'lint.{likely}'}"
        known = ", ".join(LintFormat)
        raise InputError(
            Problem(
                f"--output-file {said}: write FORMAT=FILE",
                help=f"write --output {example}; the formats are {known}",
            )
        )
    path = Path(file)
    if path.is_dir():
        raise InputError(Problem(f"--output-file {said}: {file} is a directory"))
    if not path.parent.is_dir():
        raise InputError(Problem(f"--output-file {said}: no such directory: {path.parent}"))
    return path, LintFormat(name)


def _write(path: Path, text: str) -> None:
    if path.exists() and not path.is_file():  # /dev/stderr, a pipe: nothing to be replaced
        try:
            with path.open("w", encoding="utf-8") as opened:
                opened.write(text)
        except OSError as error:
            raise InputError(Problem(f"cannot write {path}: {error.strerror}")) from error
        return
    from speclaunch.fix.edits import write_atomically

    write_atomically(path.resolve() if path.is_symlink() else path, text)


def _print(stream: TextIO, text: str) -> None:
    stream.write(text)
