"""A plan, or a comparison of plans, as one HTML page to attach to a change request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from speclaunch import __version__
from speclaunch.app.output import findings, formatting
from speclaunch.app.output.plan_memory import (
    COLORS,
    LETTERS,
    ink,
    margin_rows,
    memory_picture,
    missing,
    numbers,
    padding,
    sentences,
    spans,
    ticks,
    used,
)
from speclaunch.app.output.plan_side_by_side import (
    amount,
    change,
    differences,
    names_of,
    reasons,
    rows,
    totals,
)
from speclaunch.app.output.plan_side_by_side import cell as value_of
from speclaunch.app.output.plan_text import place, why
from speclaunch.checks import Severity, SkippedRule
from speclaunch.core import masked
from speclaunch.engine import ArgumentOutcome, Fit, MemoryUse, RankBudget
from speclaunch.measure import (
    BatchCoverage,
    Coverage,
    DeploymentPlan,
    NoCoverage,
    PlanComparison,
    PlannedDeployment,
)

TEMPLATES = Path(__file__).with_name("templates")

_TABLES = {
    "FITS": {
        Fit.FITS: ("memory fits", "good"),
        Fit.TIGHT: ("memory is tight", "odd"),
        Fit.FAILS: ("memory is too small", "bad"),
        Fit.UNKNOWN: ("memory: unknown", "odd"),
    },
    "TOO_FEW": ("too few GPUs", "bad"),
    "VERDICTS": {
        Fit.FITS: ("It fits.", "good"),
        Fit.TIGHT: ("It fits only in the best case.", "odd"),
        Fit.FAILS: ("It does not fit.", "bad"),
        Fit.UNKNOWN: ("Memory use is unknown.", "odd"),
    },
    "MARKS": {
        ArgumentOutcome.FILLED: ("computed", "info"),
        ArgumentOutcome.CHANGED: ("changed", "odd"),
        ArgumentOutcome.UNKNOWN: ("unknown", "odd"),
    },
    "SEVERITIES": tuple(Severity),
    "KINDS": {Severity.ERROR: "bad", Severity.WARNING: "odd", Severity.INFO: "info"},
    "COVERED": tuple(BatchCoverage),
    "GRAPH_COLORS": {
        BatchCoverage.CAPTURED: "#228844",
        BatchCoverage.PADDED: "#ddaa33",
        BatchCoverage.UNCOVERED: "#cc4455",
    },
    "GRAPH_PATTERNS": {BatchCoverage.PADDED: "stripes", BatchCoverage.UNCOVERED: "dots"},
    "COLORS": COLORS,
    "LETTERS": LETTERS,
    "USES": {use.value: use for use in MemoryUse},
}


def plan_page(planned: PlannedDeployment) -> str:
    """Return the page of one plan."""
    return _environment().get_template("plan.html.j2").render(planned=planned)


def comparison_page(comparisons: Sequence[PlanComparison]) -> str:
    """Return the page of two or more plans, comparing each with the next."""
    plans = [comparisons[0].before, *(comparison.after for comparison in comparisons)]
    template = _environment().get_template("comparison.html.j2")
    return template.render(comparisons=comparisons, plans=plans)


def roles_page(found: DeploymentPlan) -> str:
    """Return the page of a recipe with several roles."""
    return (
        _environment()
        .get_template("roles.html.j2")
        .render(
            found=found,
            names=[role.role for role in found.roles],
            rows=rows(found),
            totals=totals(found),
            differing=differences(found),
        )
    )


def memory_bar(rank: RankBudget, label: str) -> str:
    """Return the HTML of a rank's memory bar; empty if its memory use is unknown."""
    pictures: Any = _environment().get_template("pictures.html.j2").module
    return str(pictures.memory_bar(rank, label)).strip()


def page_environment() -> Environment:
    """Return the Jinja environment of page templates, which escapes inserted text."""
    found = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["pct"] = lambda number: f"{number:.3f}%"
    found.globals.update(version=__version__, formatting=formatting)
    return found


@cache
def _environment() -> Environment:
    found = page_environment()
    found.tests["uncovered"] = lambda coverage: isinstance(coverage, NoCoverage)
    functions = (
        amount, by_concern, change, contents, counts, findings.severity_count, ink, margin_rows,
        masked, memory_picture, missing, named, names_of, skipped_rules, notes, numbers, padding,
        place, reasons, sentences, spans, ticks, used, why,
    )  # fmt: skip
    found.globals.update({function.__name__: function for function in functions})
    found.globals.update(_TABLES, value_of=value_of)
    return found


def printable(value: Any) -> Any:
    """Return a value for a page; control characters in text are replaced."""
    if isinstance(value, Markup | int | float):
        return value
    return "".join(
        c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in str(value)
    )


def notes(*plans: PlannedDeployment) -> list[str]:
    """Return notes about hardware, argument names, checkpoints, and unknown facts."""
    found: list[str] = []
    for planned in plans:
        found += [planned.hardware_note] if planned.hardware_note else []
        found += planned.command.notes
        found += [
            f"{checkpoint.name}: {checkpoint.origin}"
            for checkpoint in planned.plan.facts.checkpoints
        ]
        found += [
            f"unknown: {fact.what}: {fact.why}{f' ({fact.help})' if fact.help else ''}"
            for fact in planned.plan.facts.unknown
        ]
    return list(dict.fromkeys(found)) if len(plans) > 1 else found


def counts(found: Coverage) -> str:
    """Return counts of batch sizes by decode mode as text."""
    return ", ".join(f"{found.count(covered)} {covered.value}" for covered in BatchCoverage)


def named(rank: RankBudget) -> str:
    """Return the ranks of a budget and the memory of each: `ranks 0-3, 80.0 GiB each`."""
    each = " each" if len(rank.ranks) > 1 else ""
    short = f", {formatting.size(rank.short_bytes)} short" if rank.short_bytes > 0 else ""
    return f"{formatting.ranks(rank.ranks)}, {formatting.size(rank.memory_bytes)}{each}{short}"


def contents(rank: RankBudget) -> str:
    """Return a rank's memory shares as text, for screen readers."""
    return ", ".join(
        f"{share.use.value} {formatting.size(share.size.bytes)}" for share in used(rank)
    )


def by_concern(rows: Iterable[Any]) -> list[tuple[Any, list[Any]]]:
    """Return consecutive arguments, grouped by concern."""
    return [(concern, list(some)) for concern, some in groupby(rows, key=lambda row: row.concern)]


def skipped_rules(skipped: Sequence[SkippedRule]) -> list[str]:
    """Return a text per reason, with the codes of the rules skipped for it."""
    return findings.reasons(skipped, lambda reason, codes: f"{', '.join(codes)} skipped: {reason}")
