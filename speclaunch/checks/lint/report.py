"""What a lint found: the report of each file and engine version, and each finding once.

Lint checks each file at each version. What it finds in a file at several versions is one finding;
so is what many recipes share, because it is in a group that all of them choose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks.rules.finding import Finding, Severity, Unjudged
from speclaunch.engine import Origin, UnknownFact, ascending

if TYPE_CHECKING:
    from speclaunch.checks.lint.checked_file import CheckedFile


class KnownCheckpoint(Struct, frozen=True):
    """A checkpoint whose facts were known: its name as asked for, and where they come from."""

    name: str
    origin: Origin | None = None
    unread: tuple[str, ...] = ()
    """The fields that no source tells, in alphabetical order."""


class FileReport(Struct, frozen=True):
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


class FileResult(Struct):
    """What is known of one file: a report an engine version, and nothing of other files.

    Without reports the file holds nothing that a lint reports. The last findings of the first
    report, `complaints` of them, are about comments of the file.
    """

    path: str
    reports: tuple[FileReport, ...] = ()
    complaints: int = 0
    not_read: bool = False
    """True if it starts a server in a way that no reader knows."""
    checked: CheckedFile | None = None
    """The file while it has to be compared with other files; its reports follow."""

    @property
    def without_complaints(self) -> tuple[FileReport, ...]:
        """The reports of a file that was named before: its comments were checked then."""
        if not self.complaints:
            return self.reports
        first, *others = self.reports
        return (replace(first, findings=first.findings[: -self.complaints]), *others)


class KnownFinding(Struct, frozen=True):
    """A finding that the baseline knows: its path counts from the baseline's directory."""

    code: str
    path: str
    message: str


class Report(Struct, frozen=True):
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


class ReportedFinding(Struct, frozen=True):
    """A finding, as the newest of its versions says it."""

    finding: Finding
    engines: tuple[str, ...]
    """The versions that it holds for, ascending."""
    files: tuple[str, ...]
    """The linted files in which it was found, in their order."""

    @property
    def through(self) -> tuple[str, ...]:
        """The files through which it was found, where it stands in another one."""
        return tuple(path for path in self.files if path != self.finding.place.path)


def for_versions(finding: Finding, engines: Sequence[str]) -> str:
    """What a finding says where its versions stand beside it; empty: they do not."""
    version = f"SGLang {finding.engine} "
    said = finding.message.removeprefix(f"{version}refuses this: ") if engines else finding.message
    return said if len(engines) < 2 else said.replace(version, "SGLang ")


def deduplicate(files: Iterable[FileReport]) -> list[ReportedFinding]:
    """Every finding once, in the order in which the files have them.

    Versions of one file are told together where code, severity, place and message agree but for
    figures; files, where the message is the same.
    """
    by_file: dict[str, list[FileReport]] = {}
    for file in files:
        by_file.setdefault(file.path, []).append(file)
    found: dict[Hashable, ReportedFinding] = {}
    for path, reports in by_file.items():
        for one in _of_versions(path, reports):
            finding = one.finding
            message = _plain(finding.message) if len(one.engines) > 1 else finding.message
            key = (finding.code, finding.severity, finding.place, message)
            before = found.get(key)
            found[key] = one if before is None else _together(before, one)
    return list(found.values())


def _of_versions(path: str, reports: Sequence[FileReport]) -> list[ReportedFinding]:
    """The findings of one file, those of its versions together."""
    is_one = len(reports) == 1
    found: dict[Hashable, ReportedFinding] = {}
    for report in reports:
        seen: Counter[Hashable] = Counter()
        for finding in report.findings:
            message = finding.message if is_one else _plain(finding.message)
            same = (finding.code, finding.severity, finding.place, message)
            seen[same] += 1
            key = (same, seen[same])  # two of one report are two
            one = ReportedFinding(finding, (finding.engine,), (path,))
            before = found.get(key)
            found[key] = one if before is None else _together(before, one)
    return list(found.values())


def _together(one: ReportedFinding, other: ReportedFinding) -> ReportedFinding:
    engines = ascending((*one.engines, *other.engines))
    newest = other if other.engines[-1] == engines[-1] != one.engines[-1] else one
    files = tuple(dict.fromkeys((*one.files, *other.files)))
    return replace(one, finding=newest.finding, engines=engines, files=files)


def _plain(message: str) -> str:
    from speclaunch.checks.lint.fingerprints import plain  # noqa: PLC0415  not needed for one version

    return plain(message)
