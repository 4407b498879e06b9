"""Terminal output of an upgrade: one page for a deployment, one table for several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from speclaunch.app.output.plan.side_by_side import show_comparison
from speclaunch.app.output.plan.terminal_lines import LineWriter, TableCell
from speclaunch.app.output.styled import many
from speclaunch.core import from_here
from speclaunch.measure import (
    Aspect,
    DeploymentRecord,
    DeploymentUpgrade,
    RunRecord,
    UpgradeDocument,
    UpgradeReason,
    UpgradeVerdict,
)

_STYLES = {
    UpgradeVerdict.SAFE: "bold green",
    UpgradeVerdict.DIFFERS: "bold yellow",
    UpgradeVerdict.NOT_SAFE: "bold red",
    UpgradeVerdict.UNKNOWN: "bold magenta",
}
_REASONS = 3
_LONG = 110


def show_upgrade(
    console: Console,
    upgrade: DeploymentUpgrade,
    record: DeploymentRecord,
    *,
    everything: bool,
) -> None:
    """Print the page of one deployment: verdict, reasons, then the supporting details."""
    paper = LineWriter(console)
    paper.line(
        (f"{record.name}: SGLang {record.source} → {record.to}: ", "bold"),
        (record.verdict.value, _STYLES[record.verdict]),
    )
    hidden = [reason for reason in record.reasons if _is_unknown_value(reason)]
    for reason in record.reasons:
        if reason in hidden:
            continue
        paper.say(reason.text, _STYLES[reason.verdict].removeprefix("bold "), mark=_mark(reason))
    if hidden:
        names = ", ".join(reason.name for reason in hidden)
        text = f"{many(len(hidden), 'argument')} without a known value: {names}"
        paper.say(text, "magenta", mark=_mark(hidden[0]))
    if record.steps:
        paper.heading("Changes of the file", str(len(record.steps)))
        for step in record.steps:
            paper.say(step, indent=2)
    if upgrade.comparison is not None:
        console.print()
        show_comparison(console, upgrade.comparison, everything=everything)
    if record.runs:
        _show_runs(paper, record.runs)


def _is_unknown_value(reason: UpgradeReason) -> bool:
    return reason.aspect is Aspect.VALUE and reason.verdict is UpgradeVerdict.UNKNOWN


def _mark(reason: UpgradeReason) -> str:
    return f"{reason.verdict.value}: {reason.aspect.value}: "


def _show_runs(paper: LineWriter, runs: Sequence[RunRecord]) -> None:
    paper.heading("On this machine")
    heads = ("release", "serves", "acceptance", "answers", "contract")
    rows = [[TableCell(head, "dim") for head in heads]]
    for run in runs:
        length = "" if run.acceptance_length is None else f"{run.acceptance_length:.2f}"
        answers = "" if not run.serves else "differ" if run.differs else f"{run.answers} the same"
        if run is runs[0] and run.serves:
            answers = f"{run.answers}, the reference"
        serves = f"after {run.seconds:.0f} s" if run.seconds is not None else "no"
        broken = f"changes {', '.join(run.broken_fields)}" if run.broken_fields else ""
        texts = (run.release, serves, length, answers, broken)
        rows.append([TableCell(text) for text in texts])
    paper.table(rows, (24, 16, 16, 24))


def show_upgrades(console: Console, document: UpgradeDocument) -> None:
    """Print one line for each deployment with its first reasons, and the number of each verdict."""
    paper = LineWriter(console)
    rows = [[TableCell(head, "dim") for head in ("deployment", "from", "verdict", "why")]]
    for record in document.deployments:
        name = "" if record.name == record.file else f" {record.name}"
        place = f"{from_here(Path(record.file))}:{record.line}{name}"
        texts = [reason.text for reason in record.reasons if reason.verdict is record.verdict]
        shown = "; ".join(_short(text) for text in texts[:_REASONS])
        more = f"; {len(texts) - _REASONS} more" if len(texts) > _REASONS else ""
        rows.append(
            [
                TableCell(place),
                TableCell(record.source or "unknown"),
                TableCell(record.verdict.value, _STYLES[record.verdict]),
                TableCell(f"{shown}{more}", "dim"),
            ]
        )
    paper.table(rows, (60, 14, 10))
    counts = Counter(record.verdict for record in document.deployments)
    found = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in _STYLES)
    console.print()
    total = many(len(document.deployments), "deployment")
    paper.line((f"{total} → SGLang {document.to}: {found}", "bold"))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONG else f"{line[: _LONG - 1]}…"
