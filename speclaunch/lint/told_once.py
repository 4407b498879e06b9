"""One finding, told once: with the engine versions that it holds for, and the files it is seen in.

Lint judges each file at each version. What it finds in a file at several versions is one finding;
so is what many recipes share, because it stands in a group that all of them choose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

from speclaunch.engine.versions import ascending
from speclaunch.lint.report import FileReport
from speclaunch.record import record
from speclaunch.rules.finding import Finding


@record
class Told:
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


def told_once(files: Iterable[FileReport]) -> list[Told]:
    """Every finding once, in the order in which the files have them.

    Versions of one file are told together where code, severity, place and message agree but for
    figures; files, where the message is the same.
    """
    by_file: dict[str, list[FileReport]] = {}
    for file in files:
        by_file.setdefault(file.path, []).append(file)
    found: dict[Hashable, Told] = {}
    for path, reports in by_file.items():
        for one in _of_versions(path, reports):
            finding = one.finding
            message = _plain(finding.message) if len(one.engines) > 1 else finding.message
            key = (finding.code, finding.severity, finding.place, message)
            before = found.get(key)
            found[key] = one if before is None else _together(before, one)
    return list(found.values())


def _of_versions(path: str, reports: Sequence[FileReport]) -> list[Told]:
    """The findings of one file, those of its versions together."""
    is_one = len(reports) == 1
    found: dict[Hashable, Told] = {}
    for report in reports:
        seen: Counter[Hashable] = Counter()
        for finding in report.findings:
            message = finding.message if is_one else _plain(finding.message)
            same = (finding.code, finding.severity, finding.place, message)
            seen[same] += 1
            key = (same, seen[same])  # two of one report are two
            one = Told(finding, (finding.engine,), (path,))
            before = found.get(key)
            found[key] = one if before is None else _together(before, one)
    return list(found.values())


def _together(one: Told, other: Told) -> Told:
    engines = ascending((*one.engines, *other.engines))
    newest = other if other.engines[-1] == engines[-1] != one.engines[-1] else one
    files = tuple(dict.fromkeys((*one.files, *other.files)))
    return replace(one, finding=newest.finding, engines=engines, files=files)


def _plain(message: str) -> str:
    from speclaunch.lint.fingerprints import plain  # noqa: PLC0415  not needed for one version

    return plain(message)
