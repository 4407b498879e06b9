"""What a lint found, file by file: what a report shows, and what a later lint remembers."""

from __future__ import annotations

from dataclasses import replace

from speclaunch.facts.checkpoint import Origin
from speclaunch.facts.unknown import UnknownFact
from speclaunch.record import record
from speclaunch.rules.finding import Finding, Severity, Unjudged


@record
class KnownCheckpoint:
    """A checkpoint whose facts were known: its name as asked for, and where they come from."""

    name: str
    origin: Origin | None = None
    unread: tuple[str, ...] = ()
    """The fields that no source tells, in alphabetical order."""


@record
class FileReport:
    """What was found in one file for one engine version. `skipped` says why it was not checked."""

    path: str
    engine: str
    findings: tuple[Finding, ...] = ()
    unjudged: tuple[Unjudged, ...] = ()
    checkpoints: tuple[KnownCheckpoint, ...] = ()
    unknown: tuple[UnknownFact, ...] = ()
    deployments: int = 0
    skipped: str | None = None
    unreadable: bool = False
    template: bool = False
    """Skipped because it is a template, whatever the version."""
    note: str | None = None
    """Why it was judged for another version than the one that it names."""


@record
class ToldFile:
    """What is told of one file, a report an engine version, and nothing of other files.

    The last findings of the first report, `complaints` of them, are about comments of the file.
    """

    reports: tuple[FileReport, ...] = ()
    complaints: int = 0

    @property
    def without_complaints(self) -> tuple[FileReport, ...]:
        """For a file that was named before: its comments were judged then."""
        if not self.complaints:
            return self.reports
        first, *others = self.reports
        return (replace(first, findings=first.findings[: -self.complaints]), *others)


@record
class KnownFinding:
    """A finding that the baseline knows: its path counts from the baseline's directory."""

    code: str
    path: str
    message: str


@record
class Report:
    """The reports of all files, in the order of the paths."""

    files: tuple[FileReport, ...] = ()
    not_read: tuple[str, ...] = ()
    """Files that start a server in a way that no reader knows."""
    known: int = 0
    """Findings that are left out, because the baseline knows them."""
    gone: tuple[KnownFinding, ...] = ()
    """What the baseline knows, and was not found again."""

    def count(self, severity: Severity) -> int:
        """How many findings of a severity."""
        return sum(f.severity is severity for file in self.files for f in file.findings)

    @property
    def unreadable(self) -> bool:
        """Whether a file could not be read."""
        return any(file.unreadable for file in self.files)

    @property
    def deployments(self) -> int:
        """How many deployments were checked, each version counted."""
        return sum(file.deployments for file in self.files)

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing to check in any of the paths."""
        told = any(file.findings or (file.skipped and not file.template) for file in self.files)
        return not (self.deployments or self.unreadable or told)
