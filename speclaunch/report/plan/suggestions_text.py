"""What would fit, and what is best for a load, on a terminal."""

from __future__ import annotations

from speclaunch.plan.budget import Fit
from speclaunch.planning.advice import Advice, Fitting
from speclaunch.report.plan import formatting
from speclaunch.report.plan.memory_text import margin_rows
from speclaunch.report.plan.terminal_lines import LineWriter, TableCell

_STYLES = {
    Fit.FITS: "bold green",
    Fit.TIGHT: "bold yellow",
    Fit.FAILS: "bold red",
    Fit.UNKNOWN: "bold magenta",
}


def show_fitting(paper: LineWriter, found: Fitting) -> None:
    """The changes with their reasons and their cost, as lines of the recipe and as overrides."""
    suggestion = found.suggestion
    paper.heading("What fits", f"objective: {suggestion.objective}")
    paper.line("  ", (found.head, _STYLES[suggestion.fit]))
    paper.say(suggestion.why, indent=2)
    for change in suggestion.changes:
        arrow = "\N{RIGHTWARDS ARROW}"
        said = f"{formatting.value(change.before)} {arrow} {formatting.value(change.value)}"
        paper.line()
        paper.say(f"{change.name}: {said}", "bold", indent=2)
        for sentence in (change.why, change.cost and f"cost: {change.cost}"):
            if sentence:
                paper.say(sentence, indent=4)
    if suggestion.cost:
        paper.line()
        paper.say(f"total cost: {suggestion.cost}", indent=2)
    if found.diff:
        paper.line()
        paper.line("  the recipe:")
        paper.line("    args:")
        for line in found.diff:
            paper.line("    ", (f"{line[:1]}   {line[2:]}", _color(line)))
        paper.line("  or on the command line, after it:")
        paper.line(f"    {formatting.quoted(found.overrides)}")
    for other in suggestion.alternatives:
        style = "green" if other.fits else "dim"
        paper.say(f"{other.what}: {other.verdict}", style, indent=2, mark="- ")


def _color(line: str) -> str:
    return "green" if line.startswith("+") else "red"


def show_advice(paper: LineWriter, found: Advice) -> None:
    """The settings, the three fractions, and the lines of the recipe."""
    best = found.best
    paper.heading("Best for the load", best.load.said)
    paper.line("  ", (found.head, _STYLES[best.fit]))
    paper.say(best.why, indent=2)
    if best.load.assumed:
        paper.say(f"no load was stated, so this assumes {' '.join(best.load.assumed)}", indent=2)
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
        paper.table([[TableCell(name), TableCell(said)] for name, said in rows], (34,))
    if found.diff:
        paper.line()
        paper.line("  the recipe:")
        paper.line("    args:")
        for line in found.diff:
            color = "green" if line.startswith("+") else "red"
            paper.line("    ", (f"{line[:1]}   {line[2:]}", color))
        paper.line("  or on the command line, after it:")
        paper.line(f"    {formatting.quoted(found.overrides)}")
    for other in best.alternatives:
        style = "green" if other.fits else "dim"
        paper.say(f"{other.what}: {other.verdict}", style, indent=2, mark="- ")
