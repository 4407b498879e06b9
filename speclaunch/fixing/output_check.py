"""What the rules find in a text that a verb is about to write, as `lint` would find it there."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from speclaunch import reads
from speclaunch.engine.catalogue import resolve_version
from speclaunch.fix.fixed_text import numbers_of
from speclaunch.importer.files import read_text
from speclaunch.importer.interface import Invocation
from speclaunch.lint.collect import LintedFile, read_buffer
from speclaunch.lint.configuration import Configuration, Given, options
from speclaunch.lint.installed import installed_engine
from speclaunch.lint.judged_for import parts
from speclaunch.lint.paths import STDIN_SHOWN
from speclaunch.lint.run import Options, lint
from speclaunch.record import record
from speclaunch.rules.finding import Finding, Severity


@record
class CheckedText:
    """A text and what the rules find in it, by place."""

    source: LintedFile
    findings: tuple[Finding, ...] = ()

    def deployments(self, finding: Finding) -> tuple[int, ...]:
        """The deployments of the text that a finding is about, by number."""
        source = self.source
        if source.recipe is not None:
            names = [role.deployment.name for role in source.recipe.parts]
            about = {one.name for one in finding.deployments}
            return tuple(at for at, name in enumerate(names) if name in about)
        if len(source.invocations) == 1:
            return ()
        return tuple(numbers_of(source.invocations, source.path, finding.deployments))

    def errors(self) -> Counter[tuple[str, int]]:
        """How often each error is found in each deployment."""
        return Counter(
            (one.code, number)
            for one in self.findings
            if one.severity is Severity.ERROR
            for number in self.deployments(one) or (0,)
        )


@record
class OutputCheck:
    """What stands against writing a text, and what its reader should know."""

    errors: tuple[Finding, ...] = ()
    """The errors that its source does not have."""
    inherited: tuple[Finding, ...] = ()
    """The errors that its source has, too."""
    warnings: tuple[Finding, ...] = ()


def configured(
    path: str,
    versions: Sequence[str],
    hardware: str | None = None,
    models: Sequence[Path] = (),
    config_dirs: Sequence[Path] = (),
) -> Options:
    """How `lint` checks the file `path` for these releases. Raises InputError.

    `hardware` is as `--hardware` takes it; the project's file configures the rest.
    """
    held = dict.fromkeys(resolve_version(version).held for version in versions)
    given = Given(tuple(held), hardware, tuple(models), tuple(config_dirs))
    return options(Configuration(given).of(path), installed_engine)


def check_text(
    path: str, text: str, options: Options, config_dirs: Sequence[Path] = ()
) -> CheckedText:
    """Check a text as the content of `path`, for the releases of `options` (none: its own)."""
    with reads.instead({} if path == STDIN_SHOWN else {os.path.realpath(path): text.encode()}):
        return check_source(_read(path, text, config_dirs), options)


def check_source(source: LintedFile, options: Options) -> CheckedText:
    """Check a text that was read, for the releases of `options` (none: its own)."""
    found: list[Finding] = []
    asked = [(source, options)]
    if not options.versions:  # as if each were stated: an error is one, whoever else accepts it
        own = parts(source, options)
        asked = [(one.source, replace(options, versions=(one.judged.version,))) for one in own]
    for some, checked in asked:
        found += [one for file in lint([some], checked).files for one in file.findings]
    return CheckedText(source, tuple(sorted(found, key=lambda one: one.place.position)))


def check_commands(source: LintedFile, versions: Sequence[str], options: Options) -> CheckedText:
    """Check the commands of a file, each for its own release."""
    by_version: dict[str, list[Invocation]] = {}
    for invocation, version in zip(source.invocations, versions, strict=True):
        by_version.setdefault(version, []).append(invocation)
    found: list[Finding] = []
    for version, some in by_version.items():
        part = replace(source, invocations=tuple(some), problems=(), remarks=(), misread=())
        found += check_source(part, replace(options, versions=(version,))).findings
    return CheckedText(source, tuple(sorted(found, key=lambda one: one.place.position)))


def against(before: CheckedText | None, after: CheckedText) -> OutputCheck:
    """The findings of a text, its errors by whether the text that it was made from has them."""
    known = before.errors() if before is not None else Counter()
    new: list[Finding] = []
    inherited: list[Finding] = []
    for one in after.findings:
        if one.severity is not Severity.ERROR:
            continue
        keys = [(one.code, number) for number in after.deployments(one) or (0,)]
        is_known = all(known[key] > 0 for key in keys)
        known.subtract(keys)
        (inherited if is_known else new).append(one)
    warnings = tuple(one for one in after.findings if one.severity is Severity.WARNING)
    return OutputCheck(tuple(new), tuple(inherited), warnings)


def together(checks: Iterable[OutputCheck]) -> OutputCheck:
    """The checks of several texts as one."""
    found = list(checks)
    return OutputCheck(
        tuple(one for check in found for one in check.errors),
        tuple(one for check in found for one in check.inherited),
        tuple(one for check in found for one in check.warnings),
    )


def _read(path: str, text: str, config_dirs: Sequence[Path]) -> LintedFile:
    found = None if path == STDIN_SHOWN else read_buffer(path, text.encode(), config_dirs)
    if found is not None:
        return found
    reading = read_text(text, path, Path(path).suffix or None)
    return LintedFile(
        path,
        text,
        None,
        reading.invocations,
        reading.unread,
        reading.problems,
        misread=reading.misread,
    )
