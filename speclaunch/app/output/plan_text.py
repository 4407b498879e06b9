"""A plan on a terminal: a table of arguments, and all other results below."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.console import Console

from speclaunch.app.output import formatting
from speclaunch.app.output.findings import brief_reasons, minor_bugs, severity_count, show_findings
from speclaunch.app.output.plan_memory import margin_rows, show_budget, show_coverage, show_memory
from speclaunch.app.output.terminal import LineWriter, TableCell
from speclaunch.checks import Severity
from speclaunch.engine import Alternative, ArgumentOutcome, EffectiveArgument, Fit, UnknownFact
from speclaunch.measure import Advice, EngineCheck, Fitting, PlannedDeployment


def show_brief(console: Console, planned: PlannedDeployment) -> None:
    """Print a plan on one screen: memory, changes by the engine, warnings, and the command."""
    paper = LineWriter(console)
    show_title(paper, planned, origins=False)
    show_memory(paper, planned.budget)
    _show_proposals(paper, planned)
    changed = [row for row in planned.rows if row.outcome is ArgumentOutcome.CHANGED or row.silent]
    filled = sum(row.outcome is ArgumentOutcome.FILLED for row in planned.rows)
    paper.heading("Changes by the engine", f"{filled} computed values: --full")
    for row in changed:
        sign, style = mark(row)
        paper.say(f"{row.version_name}: {values(row)}", style, indent=2, mark=f"{sign:<2} ")
        paper.say(why(row), indent=7)
    if not changed:
        paper.say("none", indent=2)
    paper.heading("Findings")
    serious = [finding for finding in planned.findings if finding.severity is not Severity.INFO]
    show_findings(paper.console, serious)
    if not serious:
        paper.say("no errors and no warnings", "green", indent=2)
    for line in minor_bugs(planned.findings, "--full"):
        paper.say(line, "dim", indent=2)
    for line in brief_reasons(planned.skipped):
        paper.say(line, "dim", indent=2)
    _show_command(paper, planned, brief=True)
    paper.console.print()
    paper.say(*summary(planned))


def show_plan(console: Console, planned: PlannedDeployment, *, everything: bool = False) -> None:
    """Print one complete plan: arguments, memory, graphs, findings, command, and a summary."""
    paper = LineWriter(console)
    show_title(paper, planned)
    show_arguments(paper, planned.rows, everything=everything)
    show_budget(paper, planned.budget, planned.margins)
    _show_proposals(paper, planned)
    show_coverage(paper, planned.coverage)
    _show_findings(paper, planned)
    _show_command(paper, planned)
    paper.console.print()
    paper.say(*summary(planned))


def _show_proposals(paper: LineWriter, planned: PlannedDeployment) -> None:
    if planned.fitting is not None:
        show_fitting(paper, planned.fitting)
    if planned.advice is not None:
        show_advice(paper, planned.advice)


def show_title(paper: LineWriter, planned: PlannedDeployment, *, origins: bool = True) -> None:
    """Print recipe, engine, hardware and unknown facts; with `origins`, also fact sources."""
    paper.line((planned.label, "bold"), f" on SGLang {planned.version}, {place(planned)}")
    if planned.description:
        paper.say(planned.description, "dim")
    if planned.hardware_note:
        paper.say(planned.hardware_note, mark="note: ")
    for note in planned.command.notes:
        paper.say(note, mark="note: ")
    for checkpoint in planned.plan.facts.checkpoints if origins else ():
        paper.say(f"{checkpoint.name}: {checkpoint.origin}", "dim")
    show_unknown(paper, planned.plan.facts.unknown)
    if planned.engine_check is not None:
        _show_engine(paper, planned.engine_check)


def show_unknown(paper: LineWriter, facts: Iterable[UnknownFact]) -> None:
    """Print unknown facts with their reasons and remedies."""
    for fact in facts:
        paper.say(f"{fact.what}: {fact.why}{f' ({fact.help})' if fact.help else ''}", mark="? ")


def _show_engine(paper: LineWriter, check: EngineCheck) -> None:
    if check.accepted is None:
        paper.say(f"engine check skipped for SGLang {check.release}: {check.why}", mark="? ")
        return
    what = "accepts the command" if check.accepted else "rejects the command (SPL090)"
    filled = f"; computed values: {', '.join(check.filled)}" if check.filled else ""
    paper.say(f"engine check: SGLang {check.release} {what}{filled}", "dim")
    for contradiction in check.contradictions:
        text = f"speclaunch bug, please report: {contradiction.report}"
        paper.say(text, "bold yellow", mark="! ")


def place(planned: PlannedDeployment) -> str:
    """Return the hardware of the plan as text."""
    return planned.hardware or "unknown hardware"


def summary(planned: PlannedDeployment) -> tuple[str, str]:
    """Return a one-line verdict and its style."""
    counts = [(severity, planned.count(severity)) for severity in Severity]
    parts = [severity_count(count, severity) for severity, count in counts if count]
    fit = planned.budget.fit.value
    memories = {"fits": "memory fits", "tight": "memory is tight", "fails": "memory is too small"}
    memory = memories.get(fit, "memory unknown")
    if planned.short_of_gpus:
        memory = "too few GPUs"
    style = "bold red" if planned.fails else "bold green"
    if not planned.fails and (planned.count(Severity.WARNING) or fit != "fits"):
        style = "bold yellow"
    found = ", ".join([memory, *(parts or ["no findings"])])
    return f"{planned.label} on SGLang {planned.version}: {found}", style


def _show_findings(paper: LineWriter, planned: PlannedDeployment) -> None:
    paper.heading("Findings")
    if not planned.findings:
        paper.say("no findings", "green", indent=2)
    show_findings(paper.console, planned.findings, planned.skipped)


_LONG = re.compile(r"(SGLANG_DISABLED_MODEL_ARCHS=)\S{40,}")


def _show_command(paper: LineWriter, planned: PlannedDeployment, *, brief: bool = False) -> None:
    is_new = planned.shown_command != planned.command.text
    paper.heading("Command", "with the settings above" if is_new else "")
    for line in planned.shown_command.rstrip("\n").split("\n"):
        text = _LONG.sub(r"\1…", line) if brief else line
        paper.console.print(paper.plain(text), soft_wrap=True)


_MARKS = {
    ArgumentOutcome.ACCEPTED: (" ", ""),
    ArgumentOutcome.DEFAULT: (" ", "dim"),
    ArgumentOutcome.FILLED: ("+", "cyan"),
    ArgumentOutcome.CHANGED: ("!", "bold yellow"),
    ArgumentOutcome.UNKNOWN: ("?", "magenta"),
}
"""Mark of a row and style of its effective value, by outcome."""
_LOUD = ("!!", "bold white on red")
KEY = (
    "+ the engine computes it",
    "! the engine changes the set value",
    "!! the engine changes it silently",
    "? a fact is missing",
)
_NAME, _VALUES = 34, 34


def show_arguments(
    paper: LineWriter, rows: Sequence[EffectiveArgument], *, everything: bool = False
) -> None:
    """Print the arguments by concern.

    Without `everything`, print only explicit, changed or notable rows.
    """
    shown = [row for row in rows if everything or row.notable]
    left = len(rows) - len(shown)
    paper.heading("Arguments", f"{left} more at their defaults: --all" if left else "")
    silent = [row for row in shown if row.silent]
    if silent:
        names = ", ".join(row.version_name for row in silent)
        headline = f" {formatting.many(len(silent), 'value')} changed silently: {names} "
        paper.say(headline, _LOUD[1], indent=2, mark="!! ")
    if paper.narrow:
        _stacked(paper, shown)
    else:
        _table(paper, shown)
    used = {mark(row)[0] for row in shown}
    legend = [text for text in KEY if text.split(" ")[0] in used]
    if legend:
        paper.line()
        paper.say("; ".join(legend), "dim", indent=2)


def mark(row: EffectiveArgument) -> tuple[str, str]:
    """Return the mark of a row, and its style."""
    return _LOUD if row.silent else _MARKS[row.outcome]


def why(row: EffectiveArgument) -> str:
    """Return the reason for a value: the engine's reason, or the place where the value is set."""
    if row.outcome is ArgumentOutcome.ACCEPTED and row.place is not None:
        return formatting.place(row.place)
    if row.silent:
        return f"changed silently: {row.why}"
    return row.why


def values(row: EffectiveArgument) -> str:
    """Return `set \N{RIGHTWARDS ARROW} effective`, or one value if both are equal."""
    effective = formatting.effective(row)
    if row.outcome in (ArgumentOutcome.ACCEPTED, ArgumentOutcome.DEFAULT):
        return effective
    before = formatting.set_value(row)
    return f"{before}{' ' if before else ''}\N{RIGHTWARDS ARROW} {effective}"


def _table(paper: LineWriter, rows: Iterable[EffectiveArgument]) -> None:
    heads = ("argument", "set \N{RIGHTWARDS ARROW} effective", "why")
    cells = [[TableCell(""), *(TableCell(head, "dim") for head in heads)]]
    for concern, group in groupby(rows, key=lambda row: row.concern):
        cells += [[TableCell("")], [TableCell(concern.value, "bold cyan")]]
        cells += [_cells(row) for row in group]
    paper.table(cells, (2, _NAME, _VALUES))


def _cells(row: EffectiveArgument) -> list[TableCell]:
    sign, style = mark(row)
    return [
        TableCell(sign, style),
        TableCell(row.version_name, "dim" if row.outcome is ArgumentOutcome.DEFAULT else ""),
        TableCell(values(row), style),
        TableCell(why(row), "dim" if _quiet(row) else "", "" if _quiet(row) else row.source),
    ]


def _stacked(paper: LineWriter, rows: Iterable[EffectiveArgument]) -> None:
    for concern, group in groupby(rows, key=lambda row: row.concern):
        paper.line()
        paper.line(("  " + concern.value, "bold cyan"))
        for row in group:
            sign, style = mark(row)
            paper.say(f"{row.version_name}: {values(row)}", style, indent=2, mark=f"{sign:<2} ")
            if row.outcome is not ArgumentOutcome.DEFAULT:
                paper.say(why(row), "dim" if _quiet(row) else "", indent=7)
            if row.source and not _quiet(row):
                paper.say(row.source, "dim", indent=7)


def _quiet(row: EffectiveArgument) -> bool:
    return row.outcome in (ArgumentOutcome.ACCEPTED, ArgumentOutcome.DEFAULT)


_STYLES = {
    Fit.FITS: "bold green",
    Fit.TIGHT: "bold yellow",
    Fit.FAILS: "bold red",
    Fit.UNKNOWN: "bold magenta",
}


def show_fitting(paper: LineWriter, found: Fitting) -> None:
    """Print suggested changes with reasons and cost, then the recipe lines and overrides."""
    suggestion = found.suggestion
    paper.heading("What fits", f"objective: {suggestion.objective}")
    paper.line("  ", (found.head, _STYLES[suggestion.fit]))
    paper.say(suggestion.why, indent=2)
    for change in suggestion.changes:
        arrow = "\N{RIGHTWARDS ARROW}"
        text = f"{formatting.value(change.before)} {arrow} {formatting.value(change.value)}"
        paper.line()
        paper.say(f"{change.name}: {text}", "bold", indent=2)
        for sentence in (change.why, change.cost and f"cost: {change.cost}"):
            if sentence:
                paper.say(sentence, indent=4)
    if suggestion.cost:
        paper.line()
        paper.say(f"total cost: {suggestion.cost}", indent=2)
    _show_settings(paper, found, suggestion.alternatives)


def _show_settings(
    paper: LineWriter, found: Fitting | Advice, alternatives: Iterable[Alternative]
) -> None:
    if found.diff:
        paper.line()
        paper.line("  the recipe:")
        paper.line("    args:")
        for line in found.diff:
            color = "green" if line.startswith("+") else "red"
            paper.line("    ", (f"{line[:1]}   {line[2:]}", color))
        paper.line("  or append to the command line:")
        paper.line(f"    {shlex.join(found.overrides)}")
    for other in alternatives:
        style = "green" if other.fits else "dim"
        paper.say(f"{other.what}: {other.verdict}", style, indent=2, mark="- ")


def show_advice(paper: LineWriter, found: Advice) -> None:
    """Print the best settings for a load, their memory margins, and the recipe lines."""
    best = found.best
    paper.heading("Best for the load", best.load.summary)
    paper.line("  ", (found.head, _STYLES[best.fit]))
    paper.say(best.why, indent=2)
    if best.load.assumed:
        paper.say(f"no load is set; this assumes {' '.join(best.load.assumed)}", indent=2)
    rows = [
        (name, formatting.value(value)) for name, value in best.changes.items() if found.overrides
    ]
    if best.graph_sizes:
        sizes = formatting.value(list(best.graph_sizes))
        rows.append(("batches with a CUDA graph", sizes))
    if best.margins is not None:
        rows += margin_rows(best.margins, best.load.context)
    if rows:
        paper.line()
        paper.table([[TableCell(name), TableCell(text)] for name, text in rows], (34,))
    _show_settings(paper, found, best.alternatives)
