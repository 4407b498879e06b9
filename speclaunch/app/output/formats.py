"""Output formats of `lint`: their interface, their input, and a table of them."""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec import Struct

from speclaunch.app.output.console import Printer
from speclaunch.app.output.problems import repository
from speclaunch.checks import Finding, Report, ReportedFinding, Severity, deduplicate, for_versions
from speclaunch.core import COMMAND_LINE, masked

if TYPE_CHECKING:
    from speclaunch.checks import FileEdits


Edits = Callable[[ReportedFinding], "FileEdits | None"]
"""Function that returns the edits of a finding's fix; None if a person must make them."""

NO_FILES = frozenset({"<stdin>", COMMAND_LINE})
"""Paths of findings that are not in a file."""

RANK = {severity: at for at, severity in enumerate(Severity)}
"""Sort order of severities, errors first."""


def no_edits(_found: ReportedFinding) -> FileEdits | None:
    """Return None: fixes are shown without edits."""
    return None


class FormatInput(Struct, frozen=True, dict=True):
    """Format input. `strict`: warnings fail the command. `info`: text output has all details."""

    report: Report
    strict: bool = False
    edits: Edits = no_edits
    info: bool = True

    @cached_property
    def found(self) -> list[ReportedFinding]:
        """Distinct findings in file order."""
        return deduplicate(self.report.files)

    @cached_property
    def findings(self) -> list[Finding]:
        """Distinct findings, errors first."""
        return sorted(
            (reported.finding for reported in self.found),
            key=lambda finding: RANK[finding.severity],
        )

    @cached_property
    def _once(self) -> dict[int, ReportedFinding]:
        return {id(reported.finding): reported for reported in self.found}

    def edits_of(self, finding: Finding) -> FileEdits | None:
        """Return the edits of a finding's fix; None if it is manual or shows a secret."""
        made = self.edits(self._once[id(finding)])
        return made if made is not None and made.edits and _is_public(made) else None

    @property
    def names_engines(self) -> bool:
        """True if findings must name their engine version, because the report covers several."""
        return len({file.engine for file in self.report.files if not file.template}) > 1

    def message(self, finding: Finding) -> str:
        """Return the message of a finding, with the engine version if the report has several."""
        if not self.names_engines:
            return finding.message
        once = self._once.get(id(finding))
        engines = (finding.engine,) if once is None else once.engines
        return f"SGLang {', '.join(engines)}: {for_versions(finding, engines)}"

    def full(self, finding: Finding) -> str:
        """Return the message with reason and remedy, one per line."""
        lines = [self.message(finding)]
        if finding.why:
            lines.append(f"why: {finding.why}")
        if finding.fix is not None:
            lines.append(f"help: {finding.fix.text}")
        return "\n".join(lines)

    def fails(self, finding: Finding) -> bool:
        """True if the finding affects the exit code."""
        return finding.severity is Severity.ERROR or (
            self.strict and finding.severity is Severity.WARNING
        )


def _is_public(made: FileEdits) -> bool:
    return all(masked(line) == line for line in touched(made).split("\n"))


def touched(made: FileEdits) -> str:
    """Return the old lines from the first edit to the last, then the new lines."""
    first, last = made.edits[0].line, made.edits[-1].end_line
    more = made.after.count("\n") - made.before.count("\n")
    before = made.before.split("\n")[first - 1 : last]
    return "\n".join((*before, *made.after.split("\n")[first - 1 : last + more]))


class Format(ABC):
    """Output format of lint results."""

    exits_zero = False
    """True if findings leave the exit code at 0 by default."""

    @abstractmethod
    def text(self, source: FormatInput) -> str:
        """Return the complete output, with a final newline; empty for no output."""

    def show(self, source: FormatInput, printer: Printer, write: Callable[[str], object]) -> None:
        """Show the output. `printer` draws on standard output; `write` writes text unchanged."""
        del printer
        write(self.text(source))


FORMATS = {
    "text": "findings:TextFormat",
    "concise": "findings:ConciseFormat",
    "json": "formats_services:JsonFormat",
    "github": "formats_services:GithubFormat",
    "gitlab": "formats_services:GitlabFormat",
    "sarif": "formats_reports:SarifFormat",
    "junit": "formats_reports:JunitFormat",
    "rdjson": "formats_services:RdjsonFormat",
    "azure": "formats_services:AzureFormat",
}
"""Module in `output/` and class of each format; modules are imported on first use."""


def format_named(name: str) -> Format:
    """Return the format with this name, a key of `FORMATS`."""
    module, _, kind = FORMATS[name].partition(":")
    found: Format = getattr(import_module(f"speclaunch.app.output.{module}"), kind)()
    return found


def readable(text: str) -> str:
    """Replace characters that UTF-8 cannot encode, which file names may contain."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


_NO_TEXT = dict.fromkeys(
    (*range(0x20), *range(0x7F, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A)), " "
)
"""Translation of control characters, line separators and text direction marks to spaces."""


def one_line(text: str) -> str:
    """Return text as one line, without control characters."""
    return readable(text).translate(_NO_TEXT)


def from_root(path: str) -> str:
    """Return a file's path relative to the repository root, as services expect.

    Without a repository, the root is the working directory. Paths outside the root are absolute.
    """
    if path in NO_FILES:
        return path
    here = os.getcwd()  # noqa: PTH109  text, unchanged
    root = repository_root(here).rstrip("/") + "/"
    absolute = os.path.normpath(os.path.join(here, path))  # noqa: PTH118
    real = absolute
    with contextlib.suppress(OSError, ValueError):
        real = os.path.realpath(absolute)
    for candidate in (absolute, real):
        if candidate.startswith(root):
            return candidate[len(root) :]
    return absolute


def repository_root(here: str) -> str:
    """Return the nearest directory with `.git` from `here` upward, or `here` if there is none."""
    return repository(here) or here
