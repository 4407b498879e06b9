"""Check a text that a verb is about to write, with the findings that `lint` would report."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks.edit.fixed_text import numbers_of
from speclaunch.checks.lint.cache import installed_engine
from speclaunch.checks.lint.collect import LintedFile, read_buffer, read_commands
from speclaunch.checks.lint.configuration import (
    STDIN_SHOWN,
    Configuration,
    LintSettings,
    Options,
    options,
)
from speclaunch.checks.lint.run import check, compare, parts_of, result_of
from speclaunch.checks.rules.interface import Finding, Severity
from speclaunch.core import reads
from speclaunch.engine import resolve_version


class CheckedText(Struct, frozen=True):
    """Text with its findings, ordered by place."""

    source: LintedFile
    findings: tuple[Finding, ...] = ()

    def numbers(self, finding: Finding) -> tuple[int, ...]:
        """Return the numbers of a finding's deployments, which edits preserve, unlike places."""
        source = self.source
        if source.recipe is not None:
            names = [role.deployment.name for role in source.recipe.parts]
            about = {deployment.name for deployment in finding.deployments}
            return tuple(at for at, name in enumerate(names) if name in about)
        return tuple(numbers_of(source.invocations, source.path, finding.deployments))

    def keys(self, finding: Finding) -> list[tuple[str, Severity, int]]:
        """Return the identity of a finding for each of its deployments, independent of edits."""
        numbers = self.numbers(finding) or (0,)
        return [(finding.code, finding.severity, number) for number in numbers]


class OutputCheck(Struct, frozen=True):
    """Reasons against writing a text, and warnings."""

    errors: tuple[Finding, ...] = ()
    """Errors that its source lacks."""
    inherited: tuple[Finding, ...] = ()
    """Errors that its source also has."""
    warnings: tuple[Finding, ...] = ()
    """Warnings that its source lacks."""
    inherited_warnings: tuple[Finding, ...] = ()


def configured(
    path: str,
    versions: Sequence[str],
    hardware: str | None = None,
    models: Sequence[Path] = (),
    config_dirs: Sequence[Path] = (),
) -> Options:
    """Return the options with which `lint` checks the file `path` for these releases. Raises
    InputError.

    `hardware` has the format of `--hardware`; the project's file configures the rest.
    """
    held = dict.fromkeys(resolve_version(version).held for version in versions)
    stated = LintSettings(tuple(held), hardware, tuple(models), tuple(config_dirs))
    return options(Configuration(stated).of(path), installed_engine)


def check_text(
    path: str,
    text: str,
    options: Options,
    config_dirs: Sequence[Path] = (),
    versions: Sequence[str] = (),
) -> CheckedText:
    """Check a text as the content of `path`, for the releases of `options` (none: its own).

    `versions`: instead, one release for each of its commands.
    """
    with reads.overlay({} if path == STDIN_SHOWN else {os.path.realpath(path): text.encode()}):
        read = None if path == STDIN_SHOWN else read_buffer(path, text.encode(), config_dirs)
        source = read or read_commands(path, text)
        if not versions or len(versions) != len(source.invocations):
            return check_source(source, options)
        found: list[Finding] = []
        for version in dict.fromkeys(versions):
            some = zip(source.invocations, versions, strict=True)
            part = replace(
                source, invocations=tuple(invocation for invocation, own in some if own == version)
            )
            found += check_source(part, replace(options, versions=(version,))).findings
        return CheckedText(source, _in_order(found))


def check_source(source: LintedFile, options: Options) -> CheckedText:
    """Check a text that was read, for the releases of `options` (none: its own)."""
    if options.versions:
        return CheckedText(source, findings_of(source, options))
    found: list[Finding] = []
    # as if stated: errors count even if another release accepts the text
    for part in parts_of(source, options):
        found += findings_of(part.source, replace(options, versions=(part.engine.version,)))
    return CheckedText(source, _in_order(found))


def findings_of(source: LintedFile, options: Options) -> tuple[Finding, ...]:
    """Return a file's findings, ordered by place; empty if no reader supports it."""
    if source.not_read:
        return ()
    checked = check(source, options)
    compare([checked])
    return _in_order(finding for file in result_of(checked).reports for finding in file.findings)


def _in_order(found: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(found, key=lambda finding: finding.place.position))


def against(before: CheckedText | None, after: CheckedText) -> OutputCheck:
    """Return the findings of a text, grouped by whether its source has them."""
    known: Counter[tuple[str, Severity, int]] = Counter()
    for finding in before.findings if before is not None else ():
        known.update(before.keys(finding) if before is not None else ())
    found: dict[tuple[Severity, bool], list[Finding]] = {}
    for finding in after.findings:
        keys = after.keys(finding)
        is_new = any(known[key] <= 0 for key in keys)
        known.subtract(keys)
        found.setdefault((finding.severity, is_new), []).append(finding)
    return OutputCheck(
        tuple(found.get((Severity.ERROR, True), ())),
        tuple(found.get((Severity.ERROR, False), ())),
        tuple(found.get((Severity.WARNING, True), ())),
        tuple(found.get((Severity.WARNING, False), ())),
    )
