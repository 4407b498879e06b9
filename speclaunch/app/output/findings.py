"""Findings in compiler style, and causes of skipped checks, each shown once.

A cause in a single file has the file's path. A cause in several files has their number, because
most causes are common to many files.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from speclaunch.app.output.console import PlainPrinter, Printer, Styled, many
from speclaunch.app.output.formats import Format, FormatInput, one_line
from speclaunch.app.output.problems import located
from speclaunch.checks import (
    Applicability,
    FileReport,
    Finding,
    KnownCheckpoint,
    Report,
    Severity,
    SkippedRule,
    for_versions,
)
from speclaunch.engine import UNKNOWN_HARDWARE, FactSource, UnknownFact, ascending, checkpoint_fact

if TYPE_CHECKING:
    from speclaunch.engine import Checkpoint


_MANY_CODES = 40
_MANY_NAMES = 4
_MANY_FILES = 8


Wording = Callable[[str, Sequence[str]], str]
"""Function of a reason and the codes of the rules skipped for it; returns a line of text."""


def _listed(reason: str, codes: Sequence[str]) -> str:
    return f"{_codes(codes)} skipped: {reason}"


def _numbered(reason: str, codes: Sequence[str]) -> str:
    return f"{many(len(codes), 'rule')} skipped: {reason}"


def causes(files: Sequence[FileReport], wording: Wording = _listed) -> list[str]:
    """Return one line per cause of skipped checks; causes in a single file come first."""
    by_path: dict[str, list[FileReport]] = {}
    for file in files:
        by_path.setdefault(file.path, []).append(file)
    if len(by_path) == 1:
        return list(dict.fromkeys(line for file in files for line in _of_file(file, wording)))
    listed = [*_skipped(files), *_without_result(by_path, wording), *_unknown(by_path)]
    return [*(line for count, line in listed if count == 1), *_shared(listed)]


def brief_reasons(skipped: Sequence[SkippedRule]) -> list[str]:
    """Return a line per reason with its number of skipped rules; missing hardware last."""
    known = [rule for rule in skipped if rule.reason != UNKNOWN_HARDWARE]
    return [*reasons(known, _numbered), *_needing_hardware(skipped)]


def _needing_hardware(skipped: Iterable[SkippedRule]) -> list[str]:
    needy = len({rule.code for rule in skipped if rule.reason == UNKNOWN_HARDWARE})
    rules = "1 rule needs" if needy == 1 else f"{needy} rules need"
    return [f"{rules} the hardware: set --hardware, for example h100:8"] if needy else []


def brief_causes(files: Sequence[FileReport]) -> list[str]:
    """Return the lines of `causes` with the number of rules per cause instead of their codes.

    Each missing fact is named once. Missing hardware comes last, with the option that declares it.
    """
    last = _needing_hardware(rule for file in files for rule in file.skipped_rules)
    return [*causes(list(map(_without_named, files)), _numbered), *last]


def _without_named(file: FileReport) -> FileReport:
    """Return a report without skipped rules whose missing fact is listed separately."""
    named = [UNKNOWN_HARDWARE, *(fact.what for fact in file.unknown)]
    left = (rule for rule in file.skipped_rules if not any(what in rule.reason for what in named))
    return replace(file, skipped_rules=tuple(left))


Counted = tuple[int, str]
"""Number of files, and a line about them."""


def _shared(listed: Iterable[Counted]) -> Iterator[str]:
    return (f"{line} (in {count} files)" for count, line in listed if count > 1)


def _of_file(file: FileReport, wording: Wording) -> Iterator[str]:
    if file.skipped and not file.template:
        yield f"{file.path}: not checked for {file.engine}: {file.skipped}"
    if file.note:
        yield f"{file.path}: {file.note}"
    yield from (f"{file.path}: {line}" for line in reasons(file.skipped_rules, wording))
    yield from (f"{file.path}: unknown: {line}" for line in _facts(file.unknown))


def _skipped(files: Iterable[FileReport]) -> Iterator[Counted]:
    found: dict[tuple[str, str], dict[str, None]] = {}
    for file in files:
        if file.skipped and not file.template:
            found.setdefault((file.engine, file.skipped), {})[file.path] = None
    for (engine, skipped), paths in found.items():
        yield _counted(paths, f"not checked for {engine}: {skipped}")
    for note in dict.fromkeys(file.note for file in files if file.note):
        yield _counted(dict.fromkeys(file.path for file in files if file.note == note), note)


def _without_result(by_path: dict[str, list[FileReport]], wording: Wording) -> Iterator[Counted]:
    codes: dict[str, dict[str, None]] = {}
    where: dict[str, dict[str, None]] = {}
    originals: dict[str, dict[str, None]] = {}
    for path, files in by_path.items():
        for file in files:
            for rule in file.skipped_rules:
                reason = _nameless(rule.reason, file.unknown)
                codes.setdefault(reason, {})[rule.code] = None
                where.setdefault(reason, {})[path] = None
                originals.setdefault(reason, {})[rule.reason] = None
    for reason, paths in where.items():
        text = next(iter(originals[reason])) if len(originals[reason]) == 1 else reason
        yield _counted(paths, wording(text, sorted(codes[reason])))


def _nameless(reason: str, unknown: Iterable[UnknownFact]) -> str:
    """Return a reason without the name of an unknown checkpoint, which another line names."""
    before = checkpoint_fact("")
    for fact in unknown:
        name = fact.what.removeprefix(before)
        if name != fact.what and f"checkpoint {name}" in reason:
            reason = re.sub(rf"\bcheckpoint {re.escape(name)}(?![\w/.-])", "checkpoint", reason)
    return reason


def _unknown(by_path: dict[str, list[FileReport]]) -> Iterator[Counted]:
    whats: dict[tuple[str, str | None], dict[str, None]] = {}
    where: dict[tuple[str, str | None], dict[str, None]] = {}
    for path, files in by_path.items():
        for file in files:
            for fact in file.unknown:
                cause = (fact.why, fact.help)
                whats.setdefault(cause, {})[fact.what] = None
                where.setdefault(cause, {})[path] = None
    for cause, paths in where.items():
        yield _counted(paths, f"unknown: {_unknown_text(list(whats[cause]), *cause)}")


def _counted(paths: dict[str, None], line: str) -> Counted:
    return len(paths), f"{next(iter(paths))}: {line}" if len(paths) == 1 else line


def _facts(facts: Sequence[UnknownFact]) -> list[str]:
    by_reason: dict[tuple[str, str | None], list[str]] = {}
    for fact in facts:
        by_reason.setdefault((fact.why, fact.help), []).append(fact.what)
    return [_unknown_text(whats, *cause) for cause, whats in by_reason.items()]


def _unknown_text(whats: Sequence[str], why: str, hint: str | None) -> str:
    return f"{_named(whats, _MANY_NAMES)}: {why}" + (f" ({hint})" if hint else "")


def reasons(skipped: Sequence[SkippedRule], wording: Wording = _listed) -> list[str]:
    """Return one line per reason, with the rules skipped for it."""
    by_reason: dict[str, list[str]] = {}
    for rule in skipped:
        by_reason.setdefault(rule.reason, []).append(rule.code)
    return [wording(reason, list(dict.fromkeys(codes))) for reason, codes in by_reason.items()]


def _codes(codes: Sequence[str]) -> str:
    return ", ".join(codes) if len(codes) <= _MANY_CODES else f"{len(codes)} rules"


def _named(names: Sequence[str], most: int) -> str:
    named, more = ", ".join(names[:most]), len(names) - most
    return f"{named} and {more} more" if more > 0 else named


def left_out(report: Report) -> list[str]:
    """Return lines about unchecked files.

    Each kind of unrendered template has one line. Files that start a server in an unsupported
    way share one line.
    """
    by_kind: dict[str, list[str]] = {}
    for file in report.files:
        if file.template and file.skipped:
            by_kind.setdefault(file.skipped, []).append(file.path)
    lines = [
        f"{_named(paths, _MANY_FILES)} {_of_many(kind, len(paths))}"
        for kind, paths in by_kind.items()
    ]
    if report.not_read:
        start = "it starts" if len(report.not_read) == 1 else "they start"
        lines.append(
            f"not read: {_named(report.not_read, _MANY_FILES)}: {start} SGLang in an "
            "unsupported way"
        )
    return lines


def of_baseline(report: Report) -> list[str]:
    """Return lines about findings in the baseline and about stale baseline entries."""
    lines = [f"{many(report.known, 'known finding')} in the baseline"] if report.known else []
    if report.gone:
        lines.append(
            f"{many(len(report.gone), 'baseline finding')} no longer found; update the baseline "
            "with --write-baseline:"
        )
        lines += [
            f"  {known.code} in {known.path}: {known.message}"
            for known in report.gone[:_MANY_CODES]
        ]
        if len(report.gone) > _MANY_CODES:
            lines.append(f"  and {len(report.gone) - _MANY_CODES} more")
    return lines


def _of_many(kind: str, count: int) -> str:
    """Return `kind`, such as `is a Helm template: …`, in the plural unless `count` is 1."""
    return (
        kind
        if count == 1
        else kind.replace("is a ", "are ", 1).replace("template:", "templates:", 1)
    )


COLORS = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold cyan"}


def render(
    finding: Finding,
    *,
    engines: Sequence[str] = (),
    through: Sequence[str] = (),
    name_option: bool = False,
    full: bool = False,
) -> Styled:
    """Return one finding as text: message, place with line and caret, reason, remedy.

    `engines`: versions to name. `through`: files that include the file of the finding.
    `name_option`: name the option of `lint` that applies the fix. An advisory is one line unless
    `full`; `speclaunch explain` shows the reason.
    """
    if finding.is_advisory and not full:
        return _one_line(finding, engines)
    text = Styled(f"{finding.severity}[{finding.code}]", COLORS[finding.severity])
    if engines:
        text.append(f" SGLang {', '.join(engines)}")
    text.append(f": {for_versions(finding, engines)}", "bold").append("\n")
    brief = finding.severity is Severity.INFO
    text.extend(located(finding.place, brief=brief, others=() if brief else finding.others))
    if through:
        more = f" and {len(through) - 1} more" if len(through) > 1 else ""
        text.append("\n  through", "bold cyan").append(f": {through[0]}{more}")
    if finding.why:
        text.append("\n  why", "bold cyan")
        text.append(f": {finding.why}")
    if finding.fix is not None:
        text.append("\n  help", "bold cyan")
        text.append(f": {finding.fix.text}")
        option = _OPTIONS.get(finding.fix.applicability) if name_option else None
        if option is not None:
            text.append(f" [{option}]", "dim")
    return text


def _one_line(finding: Finding, engines: Sequence[str]) -> Styled:
    text = Styled(f"{finding.severity}[{finding.code}]", COLORS[finding.severity])
    text.append(f" {finding.place}")
    if engines:
        text.append(f" SGLang {', '.join(engines)}")
    text.append(f": {finding.message}. ", "bold")
    return text.append(finding.fix.text if finding.fix is not None else finding.why)


def minor_bugs(findings: Iterable[Finding], more: str) -> list[str]:
    """Return a line about info-severity advisories, if any. `more`: the option that shows them."""
    ids = dict.fromkeys(finding.code for finding in findings if finding.is_minor_bug)
    if not ids:
        return []
    affect, have = ("affects", "has") if len(ids) == 1 else ("affect", "have")
    noun = many(len(ids), "known engine bug")
    what = f"that {affect} only certain requests or {have} weak evidence"
    return [f"{noun} {what}: {', '.join(ids)} ({more})"]


def bugs_across(before: Iterable[Finding], after: Iterable[Finding]) -> str | None:
    """Return a line with the known bugs that a release change fixes or introduces, or None."""
    old, new = (
        {finding.code for finding in each if finding.is_advisory} for each in (before, after)
    )
    if old == new:
        return None
    parts = [
        f"{verb} {len(ids)} ({', '.join(sorted(ids))})"
        for verb, ids in (("fixes", old - new), ("introduces", new - old))
        if ids
    ]
    return f"known engine bugs: {', '.join(parts)}"


_OPTIONS = {
    None: None,
    Applicability.SAFE: "--fix",
    Applicability.UNSAFE: "--unsafe-fixes",
}


def show_findings(
    console: Printer, findings: Iterable[Finding], skipped: Sequence[SkippedRule] = ()
) -> None:
    """Print the findings of one deployment, and the rules without a result."""
    for finding in findings:
        console.print(render(finding))
    for line in reasons(skipped):
        console.print(line, style="dim")


_ORIGINS = {
    FactSource.DIRECTORY: "a directory",
    FactSource.CACHE: "the hub cache of this machine",
    FactSource.REPOSITORY: "the repository's .speclaunch/models",
    FactSource.INDEX: "speclaunch's index",
    FactSource.HUB: "the hub",
}


def origins(checkpoints: Iterable[Checkpoint | KnownCheckpoint]) -> list[str]:
    """Return the sources of checkpoint facts, one line per source."""
    by_source: dict[str, dict[str, None]] = {}
    for checkpoint in checkpoints:
        if checkpoint.origin is None:
            continue
        source = _ORIGINS[checkpoint.origin.provenance]
        if checkpoint.origin.provenance is FactSource.INDEX:
            source += f" (read {checkpoint.origin.read})"
        name = (
            f"{checkpoint.name} as {checkpoint.origin.assumed}"
            if checkpoint.origin.assumed
            else checkpoint.name
        )
        by_source.setdefault(source, {})[name] = None
    return [
        f"checkpoint facts from {source}: {_named(list(names), _MANY_NAMES)}"
        for source, names in by_source.items()
    ]


class TextFormat(Format):
    """Text output, with styles only on a terminal."""

    def text(self, source: FormatInput) -> str:
        written = io.StringIO()
        _show(PlainPrinter(written), source)
        return written.getvalue()

    def show(self, source: FormatInput, printer: Printer, write: Callable[[str], object]) -> None:
        del write
        _show(printer, source)


def _show(printer: Printer, source: FormatInput) -> None:
    report = source.report
    several = source.names_engines
    for found in source.found:
        if found.finding.severity is Severity.INFO and not source.info:
            continue
        engines = found.engines if several else ()
        through = found.through
        printer.print(
            render(
                found.finding,
                engines=engines,
                through=through,
                name_option=True,
                full=source.info,
            )
        )
    lines = [*left_out(report), *of_baseline(report)]
    if not report.is_empty:
        known = (checkpoint for file in report.files for checkpoint in file.checkpoints)
        details = [*causes(report.files), *origins(known)]
        lines += details if source.info else brief_causes(report.files)
    if not source.info:
        lines += minor_bugs(source.findings, "--info")
    for line in lines:
        printer.print(Styled(line, "dim"))
    if not report.is_empty:
        printer.print(_summary(source))


def severity_count(count: int, severity: Severity) -> str:
    """Return a number of findings as text: `2 errors`, `1 info`."""
    return f"{count} info" if severity is Severity.INFO else many(count, severity)


def _summary(source: FormatInput) -> Styled:
    """Return `2 errors, 1 warning in 3 deployments (SGLang 0.5.23)`, each finding counted once."""
    report = source.report
    counts = Counter(finding.severity for finding in source.findings)
    parts = [
        severity_count(counts[severity], severity) for severity in Severity if counts[severity]
    ]
    if counts[Severity.INFO] and not source.info:
        parts[-1] += " (--info)"
    engines = ", ".join(ascending(file.engine for file in report.files if not file.template))
    where = f"{many(report.deployments, 'deployment')} (SGLang {engines})"
    color = next((COLORS[severity] for severity in Severity if counts[severity]), "bold green")
    return Styled(f"{', '.join(parts) or 'no findings'} in {where}", color)


class ConciseFormat(Format):
    """One line per finding, in file order."""

    def text(self, source: FormatInput) -> str:
        return "".join(
            f"{one_line(f'{x.place}: {x.severity}[{x.code}] {source.message(x)}')}\n"
            for x in (found.finding for found in source.found)
        )
