"""Findings as a compiler shows them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from speclaunch.facts.checkpoint import FactSource
from speclaunch.lint.report import KnownCheckpoint
from speclaunch.lint.told_once import for_versions
from speclaunch.report.causes import reasons
from speclaunch.report.problems import located
from speclaunch.report.styled import Printer, Styled
from speclaunch.rules.finding import Applicability, Finding, Severity, Unjudged

if TYPE_CHECKING:
    from speclaunch.facts.checkpoint import Checkpoint

COLORS = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold cyan"}


def render(
    finding: Finding,
    *,
    engines: Sequence[str] = (),
    through: Sequence[str] = (),
    name_option: bool = False,
) -> Styled:
    """One finding: what, where with the line and a caret, why, and what to do.

    `engines`: the versions that it holds for, where they are to be named. `through`: the files that
    bring in the one in which it stands. `name_option`: say which option of `lint` does it.
    """
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


_OPTIONS = {
    None: None,
    Applicability.SAFE: "--fix",
    Applicability.UNSAFE: "--unsafe-fixes",
}
"""What applies a fix."""


def show_findings(
    console: Printer, findings: Iterable[Finding], unjudged: Sequence[Unjudged] = ()
) -> None:
    """The findings of one deployment."""
    for finding in findings:
        console.print(render(finding))
    for line in reasons(unjudged):
        console.print(line, style="dim", markup=False)


_ORIGINS = {
    FactSource.DIRECTORY: "a directory",
    FactSource.CACHE: "the hub cache of this machine",
    FactSource.REPOSITORY: "the repository's .speclaunch/models",
    FactSource.INDEX: "speclaunch's index",
    FactSource.HUB: "the hub",
}
_MANY_NAMES = 4


def origins(checkpoints: Iterable[Checkpoint | KnownCheckpoint]) -> list[str]:
    """Where the facts of checkpoints come from, a line a source."""
    by_source: dict[str, dict[str, None]] = {}
    for one in checkpoints:
        if one.origin is None:
            continue
        source = _ORIGINS[one.origin.provenance]
        if one.origin.provenance is FactSource.INDEX:
            source += f" (read {one.origin.read})"
        name = f"{one.name} as {one.origin.assumed}" if one.origin.assumed else one.name
        by_source.setdefault(source, {})[name] = None
    lines = []
    for source, names in by_source.items():
        shown, more = list(names)[:_MANY_NAMES], len(names) - _MANY_NAMES
        rest = f" and {more} more" if more > 0 else ""
        lines.append(f"checkpoints known from {source}: {', '.join(shown)}{rest}")
    return lines
