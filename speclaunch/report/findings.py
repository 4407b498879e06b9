"""Findings as a compiler shows them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from speclaunch.engine.versions import ascending
from speclaunch.facts.facts import UnknownFact
from speclaunch.facts.origin import Provenance
from speclaunch.lint.report import FileReport, KnownCheckpoint, Report
from speclaunch.report.problems import located
from speclaunch.report.styled import Printer, Styled
from speclaunch.rules.finding import Finding, Severity, Unjudged

if TYPE_CHECKING:
    from speclaunch.facts.checkpoint import Checkpoint

_COLORS = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold cyan"}


def show_report(console: Printer, report: Report) -> None:
    """Every finding of every file, what could not be judged, and a line that sums it up."""
    several = len({file.engine for file in report.files if not file.template}) > 1
    for file in report.files:
        for finding in file.findings:
            console.print(render(finding, name_engine=several))
        if file.skipped and not file.template:
            console.print(
                Styled(f"{file.path}: not checked for {file.engine}: {file.skipped}", "dim")
            )
    show_left_out(console, report)
    known = (one for file in report.files for one in file.checkpoints)
    for line in (*_not_judged(report.files), *origins(known)):
        console.print(line, style="dim", markup=False)
    console.print(summary(report))


_MANY_FILES = 8


def show_left_out(console: Printer, report: Report) -> None:
    """The files that have to be rendered before anything in them can be judged, a line each; and
    those that start a server and are of no kind that is read, in one line."""
    for file in report.files:
        if file.template:
            console.print(f"{file.path} {file.skipped}", style="dim", markup=False)
    if report.not_read:
        named, more = report.not_read[:_MANY_FILES], len(report.not_read) - _MANY_FILES
        said = ", ".join(named) + (f" and {more} more" if more > 0 else "")
        start = "it starts" if len(report.not_read) == 1 else "they start"
        console.print(
            f"not read: {said}: {start} SGLang in a way that lint cannot read",
            style="dim",
            markup=False,
        )


def render(finding: Finding, *, name_engine: bool = False) -> Styled:
    """One finding: what, where with the line and a caret, why, and what to do."""
    text = Styled(f"{finding.severity}[{finding.code}]", _COLORS[finding.severity])
    if name_engine:
        text.append(f" SGLang {finding.engine}")
    text.append(f": {finding.message}", "bold").append("\n")
    text.extend(located(finding.place, brief=finding.severity is Severity.INFO))
    if finding.why:
        text.append("\n  why", "bold cyan")
        text.append(f": {finding.why}")
    if finding.fix is not None:
        text.append("\n  help", "bold cyan")
        text.append(f": {finding.fix.text}")
    return text


_MANY_CODES = 40


def show_findings(
    console: Printer, findings: Iterable[Finding], unjudged: Sequence[Unjudged] = ()
) -> None:
    """The findings of one deployment."""
    for finding in findings:
        console.print(render(finding))
    for line in _reasons(unjudged):
        console.print(line, style="dim", markup=False)


def summary(report: Report) -> Styled:
    """`2 errors, 1 warning in 3 deployments (SGLang 0.5.23)`."""
    counts = {severity: report.count(severity) for severity in Severity}
    parts = [_many(n, severity) for severity, n in counts.items() if n]
    engines = ", ".join(ascending(file.engine for file in report.files if not file.template))
    where = f"{_many(report.deployments, 'deployment')} (SGLang {engines})"
    color = next((_COLORS[severity] for severity, n in counts.items() if n), "bold green")
    return Styled(f"{', '.join(parts) or 'no findings'} in {where}", color)


def _many(count: int, what: str) -> str:
    plural = "" if count == 1 or what == Severity.INFO else "s"
    return f"{count} {what}{plural}"


def _not_judged(files: Iterable[FileReport]) -> list[str]:
    lines: list[str] = []
    for file in files:
        lines += [f"{file.path}: {line}" for line in _reasons(file.unjudged)]
        lines += [f"{file.path}: unknown: {line}" for line in _unknown(file.unknown)]
    return list(dict.fromkeys(lines))


_ORIGINS = {
    Provenance.DIRECTORY: "a directory",
    Provenance.CACHE: "the hub cache of this machine",
    Provenance.REPOSITORY: "the repository's .speclaunch/models",
    Provenance.INDEX: "speclaunch's index",
    Provenance.HUB: "the hub",
}
_MANY_NAMES = 4


def origins(checkpoints: Iterable[Checkpoint | KnownCheckpoint]) -> list[str]:
    """Where the facts of checkpoints come from, a line a source."""
    by_source: dict[str, dict[str, None]] = {}
    for one in checkpoints:
        if one.origin is None:
            continue
        source = _ORIGINS[one.origin.provenance]
        if one.origin.provenance is Provenance.INDEX:
            source += f" (read {one.origin.read})"
        name = f"{one.name} as {one.origin.assumed}" if one.origin.assumed else one.name
        by_source.setdefault(source, {})[name] = None
    lines = []
    for source, names in by_source.items():
        shown, more = list(names)[:_MANY_NAMES], len(names) - _MANY_NAMES
        rest = f" and {more} more" if more > 0 else ""
        lines.append(f"checkpoints known from {source}: {', '.join(shown)}{rest}")
    return lines


def _unknown(facts: Sequence[UnknownFact]) -> list[str]:
    """The facts that are missing, those for the same reason in one line."""
    by_reason: dict[tuple[str, str | None], list[str]] = {}
    for fact in facts:
        by_reason.setdefault((fact.why, fact.help), []).append(fact.what)
    return [
        f"{', '.join(whats)}: {why}" + (f" ({hint})" if hint else "")
        for (why, hint), whats in by_reason.items()
    ]


def _reasons(unjudged: Sequence[Unjudged]) -> list[str]:
    """The rules that had no verdict, by their reason."""
    by_reason: dict[str, list[str]] = {}
    for one in unjudged:
        by_reason.setdefault(one.reason, []).append(one.code)
    return [
        f"not checked, because {reason}: {_codes(list(dict.fromkeys(codes)))}"
        for reason, codes in by_reason.items()
    ]


def _codes(codes: Sequence[str]) -> str:
    """Rules by their codes; very many (nothing is known of a deployment) by their number."""
    return ", ".join(codes) if len(codes) <= _MANY_CODES else f"{len(codes)} rules"
