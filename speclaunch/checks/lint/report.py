"""Result of a lint run: a report for each file and engine version.

Lint checks each file at each version. A finding at several versions, or in a group that many
recipes share, is reported once. Baselines, SARIF and code quality reports identify findings by a
fingerprint. It covers the code, the path, the arguments with the user's values, and a number that
distinguishes equal findings. Without arguments, the flags and quoted names of the message replace
them. The fingerprint omits lines, columns, wording and engine versions; places only order the
numbers.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from speclaunch.checks.rules.interface import Finding, Severity, SkippedRule
from speclaunch.core import COMMAND_LINE, lazy, literals
from speclaunch.engine import Origin, UnknownFact, ascending

if TYPE_CHECKING:
    from speclaunch.checks.lint.collect import Ignore, LintedFile
    from speclaunch.checks.lint.configuration import Options
    from speclaunch.engine import Plan


class KnownCheckpoint(Struct, frozen=True):
    """Checkpoint with known facts: its requested name, and the sources of the facts."""

    name: str
    origin: Origin | None = None
    unread: tuple[str, ...] = ()
    """Fields without a source, in alphabetical order."""


class FileReport(Struct, frozen=True):
    """Findings of one file for one engine version. `skipped`: why the file was not checked."""

    path: str
    engine: str
    findings: tuple[Finding, ...] = ()
    skipped_rules: tuple[SkippedRule, ...] = field(default=(), name="unjudged")
    checkpoints: tuple[KnownCheckpoint, ...] = ()
    unknown: tuple[UnknownFact, ...] = ()
    deployments: int = 0
    skipped: str | None = None
    unreadable: bool = False
    template: bool = False
    """True if the file was skipped as a template, regardless of the version."""
    note: str | None = None
    """Reason why the checked version differs from the named version; None if it does not."""


class EngineChoice(Struct, frozen=True):
    """Version that a part of a file is checked for."""

    version: str
    others: tuple[str, ...] = ()
    """Other releases that the part may be meant for; empty if a version is named."""
    note: str | None = None
    """Reason why the checked version differs from the named version; None if it does not."""


class FilePart(Struct):
    """Part of a file that is checked for one engine version, with its findings."""

    source: LintedFile
    engine: EngineChoice
    plans: list[Plan] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    skipped_rules: list[SkippedRule] = field(default_factory=list)
    unknown: list[UnknownFact] = field(default_factory=list)
    skipped: str | None = None


class CheckedFile(Struct):
    """File that was checked alone, and may still have to be compared with other files."""

    path: str
    parts: list[FilePart]
    ignores: list[Ignore]
    options: Options
    is_compared: bool = False
    """True if its findings depend on other files."""

    @property
    def plans(self) -> list[Plan]:
        return [plan for part in self.parts for plan in part.plans]

    @property
    def secrets(self) -> list[str]:
        from speclaunch.checks.rules.examine import secrets_of  # noqa: PLC0415  not for cached results

        found = [secret for plan in self.plans for secret in secrets_of(plan.request)]
        for part in self.parts[:1]:
            for line in part.source.text.splitlines():
                found += literals(line)
        return found


class FileResult(Struct):
    """Result of one file, independent of other files: a report for each engine version.

    Without reports, `checked` or `not_read`, there is nothing to lint. The last `complaints`
    findings of the first report are about the file's comments.
    """

    path: str
    reports: tuple[FileReport, ...] = ()
    complaints: int = 0
    not_read: bool = False
    """True if the file starts a server in a way that no reader supports."""
    checked: CheckedFile | None = None
    """File that has to be compared with other files before it has reports."""

    @property
    def without_complaints(self) -> tuple[FileReport, ...]:
        """Reports without findings about comments, for a file that is named a second time."""
        if not self.complaints:
            return self.reports
        first, *others = self.reports
        return (replace(first, findings=first.findings[: -self.complaints]), *others)


class KnownFinding(Struct, frozen=True):
    """Finding in a baseline; its path is relative to the baseline's directory."""

    code: str
    path: str
    message: str


class Report(Struct, frozen=True):
    """Reports of all files, in the order of the paths."""

    files: tuple[FileReport, ...] = ()
    not_read: tuple[str, ...] = ()
    """Files that start a server in a way that no reader supports."""
    known: int = 0
    """Number of findings hidden by the baseline."""
    gone: tuple[KnownFinding, ...] = ()
    """Baseline entries that no finding matches."""

    def count(self, severity: Severity) -> int:
        return sum(f.severity is severity for file in self.files for f in file.findings)

    @property
    def unreadable(self) -> bool:
        return any(file.unreadable for file in self.files)

    @property
    def deployments(self) -> int:
        """Number of deployments checked, counting each version."""
        return sum(file.deployments for file in self.files)

    @property
    def is_empty(self) -> bool:
        """True if the paths contained nothing to check."""
        has_results = any(
            file.findings or (file.skipped and not file.template) for file in self.files
        )
        return not (self.deployments or self.unreadable or has_results)


class ReportedFinding(Struct, frozen=True):
    """Finding, merged over versions and files, with the newest version's wording."""

    finding: Finding
    engines: tuple[str, ...]
    """Versions that the finding applies to, ascending."""
    files: tuple[str, ...]
    """Linted files in which the finding occurs, in order."""

    @property
    def through(self) -> tuple[str, ...]:
        """Linted files that led to the finding, if it is in a different file."""
        return tuple(path for path in self.files if path != self.finding.place.path)


def for_versions(finding: Finding, engines: Sequence[str]) -> str:
    """Return a finding's message, without repeating the versions `engines` shown next to it."""
    version = f"SGLang {finding.engine} "
    message = (
        finding.message.removeprefix(f"{version}refuses this: ") if engines else finding.message
    )
    return message if len(engines) < 2 else message.replace(version, "SGLang ")


def deduplicate(files: Iterable[FileReport]) -> list[ReportedFinding]:
    """Return every finding once, in the order of the files.

    Findings of several versions are merged if code, severity and place are equal, and messages
    differ only in numbers. Across files, messages must be equal.
    """
    by_file: dict[str, list[FileReport]] = {}
    for file in files:
        by_file.setdefault(file.path, []).append(file)
    found: dict[Hashable, ReportedFinding] = {}
    for path, reports in by_file.items():
        for reported in _of_versions(path, reports):
            finding = reported.finding
            message = plain(finding.message) if len(reported.engines) > 1 else finding.message
            key = (finding.code, finding.severity, finding.place, message)
            before = found.get(key)
            found[key] = reported if before is None else _together(before, reported)
    return list(found.values())


def _of_versions(path: str, reports: Sequence[FileReport]) -> list[ReportedFinding]:
    """Return the findings of one file, merged across versions."""
    is_single = len(reports) == 1
    found: dict[Hashable, ReportedFinding] = {}
    for report in reports:
        seen: Counter[Hashable] = Counter()
        for finding in report.findings:
            message = finding.message if is_single else plain(finding.message)
            same = (finding.code, finding.severity, finding.place, message)
            seen[same] += 1
            key = (same, seen[same])  # two in one report are separate
            reported = ReportedFinding(finding, (finding.engine,), (path,))
            before = found.get(key)
            found[key] = reported if before is None else _together(before, reported)
    return list(found.values())


def _together(first: ReportedFinding, second: ReportedFinding) -> ReportedFinding:
    engines = ascending((*first.engines, *second.engines))
    newest = second if second.engines[-1] == engines[-1] != first.engines[-1] else first
    files = tuple(dict.fromkeys((*first.files, *second.files)))
    return replace(first, finding=newest.finding, engines=engines, files=files)


FIGURE = lazy(r"(?<![\w.\-/])v?\d+(?:[.,]\d+)*(?:\.(?:post|dev)\d+|rc\d+)?(?![\w\-/]|\.\w)")
"""Pattern of a number or version that is not part of a name (`Llama-3.1-8B`, `fp8_e4m3`)."""
_SPACE = lazy(r"\s+")


def plain(message: str) -> str:
    """Return a message without its numbers, so that equal wordings of two versions match."""
    return _SPACE.sub(" ", FIGURE.sub("#", message)).strip()


_LENGTH = 32
"""Number of hexadecimal digits in a fingerprint: half of a SHA-256."""
_NAME = lazy(r"(?<![\w-])--[a-z0-9][\w-]*|`[^`]+`")
"""Pattern of a flag or a quoted name."""


def fingerprints(findings: Iterable[Finding], root: str | os.PathLike[str] = ".") -> list[str]:
    """Return the fingerprint of each finding, in order: 32 hexadecimal digits.

    Paths below the directory `root` are relative to it; others are absolute. Two findings with the
    same code, arguments, place and message share a fingerprint: they are one finding for two
    versions. The order of the files does not matter.
    """

    def subject(finding: Finding) -> str:
        if finding.arguments:
            return json.dumps(sorted(finding.arguments.items()))
        return json.dumps([[name] for name in sorted(set(_NAME.findall(finding.message)))])

    return _numbered(findings, root, subject, plain)


def fingerprints_by_message(
    findings: Iterable[Finding], root: str | os.PathLike[str] = "."
) -> list[str]:
    """Return format 1 fingerprints, which cover code, path and message without its numbers."""
    return _numbered(findings, root, lambda finding: plain(finding.message), lambda _: "")


def _numbered(
    findings: Iterable[Finding],
    root: str | os.PathLike[str],
    subject: Callable[[Finding], str],
    order: Callable[[str], str],
) -> list[str]:
    """Return a digest of each finding's code, path, subject, and number in order of place."""
    base = os.path.abspath(root)  # noqa: PTH100  links are not resolved
    keyed = []
    places: dict[tuple[str, str, str], set[tuple[int, int, str]]] = {}
    for finding in findings:
        key = (finding.code, path_from(finding.place.path, base), subject(finding))
        place = (finding.place.line, finding.place.column, order(finding.message))
        places.setdefault(key, set()).add(place)
        keyed.append((key, place))
    numbers = {key: {at: n for n, at in enumerate(sorted(found))} for key, found in places.items()}
    digests = []
    for key, place in keyed:
        text = "\0".join((*key, str(numbers[key][place])))
        data = text.encode("utf-8", "surrogatepass")
        digests.append(hashlib.sha256(data).hexdigest()[:_LENGTH])
    return digests


def path_from(path: str, base: str) -> str:
    """Return a path with forward slashes, relative to the absolute directory `base` if below it."""
    if path == COMMAND_LINE:
        return path
    absolute = os.path.abspath(path)  # noqa: PTH100
    inside = absolute.startswith(base.rstrip(os.sep) + os.sep)
    return (os.path.relpath(absolute, base) if inside else absolute).replace(os.sep, "/")
