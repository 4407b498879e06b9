"""A certificate as one self-contained page to attach to a change request."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import groupby
from pathlib import Path

from jinja2 import Environment

from speclaunch.app.output import bench_words as words
from speclaunch.app.output.bench_page import charts
from speclaunch.app.output.plan import formatting
from speclaunch.app.output.plan.page import page_environment
from speclaunch.measure import CellRecord, CertificateDocument, SideMemory

TEMPLATES = Path(__file__).with_name("templates")
KINDS = {"pays": "good", "does not pay": "bad", "not shown": "odd"}
"""Color of a claim."""
COLUMNS = (
    "cell",
    "tokens/s",
    "speed-up (interval)",
    "latency",
    "TTFT",
    "TPOT",
    "accept length",
    "accepted by position",
    "goodput",
)


def certificate_page(found: CertificateDocument) -> str:
    """Return the page of a certificate; deterministic."""
    template = _environment().get_template("certificate.html.j2")
    names = (found.candidate, found.baseline)
    scale = charts.ratio_scale(found.cells) if found.cells else (1.0, 1.0)
    return template.render(
        found=found,
        names=names,
        COLUMNS=COLUMNS if found.goodput_within else COLUMNS[:-1],
        claims=claims(found.cells),
        plots=[
            (words.per_cell(cells[0], concurrency=False), cells, charts.ratio_plot(cells, scale))
            for cells in by_workload(found.cells)
        ],
        shares=charts.share_plot(found.cells),
        times=charts.time_plots(found.cells, found.quantiles, names),
        spreads=[
            (words.per_cell(cell), charts.distributions(cell, found.quantiles, names))
            for cell in found.cells
        ],
    )


@cache
def _environment() -> Environment:
    found = page_environment(TEMPLATES)
    found.filters["px"] = lambda number: f"{number:.2f}"
    found.globals.update(
        words=words,
        KINDS=KINDS,
        HEIGHT=charts.HEIGHT,
        MOST_LABELS=charts.MOST_LABELS,
        QUARTERS=charts.QUARTERS,
        command=words.command_text,
        memory_rows=memory_rows,
        engines=engines,
    )
    return found


def by_workload(cells: Sequence[CellRecord]) -> list[list[CellRecord]]:
    """Return the cells of each workload and context length, by concurrency."""

    def key(cell: CellRecord) -> tuple[int, int]:
        return names.index(cell.workload), cell.context

    names = list(dict.fromkeys(cell.workload for cell in cells))
    ordered = sorted(cells, key=lambda cell: (*key(cell), cell.concurrency))
    return [list(some) for _, some in groupby(ordered, key=key)]


def claims(cells: Sequence[CellRecord]) -> list[tuple[str, str]]:
    """Return each workload's results with their claims: `code: pays at 1, 8`."""
    results: list[tuple[str, str]] = []
    for some in by_workload(cells):
        name = words.per_cell(some[0], concurrency=False)
        for claim in KINDS:
            at = [str(cell.concurrency) for cell in some if cell.claim == claim]
            if at:
                results.append((f"{name}: {claim} at {', '.join(at)}", claim))
    return results


def engines(found: CertificateDocument) -> str:
    """Return engines and hardware, if known: `SGLang 0.5.23 on cpu`."""
    versions = dict.fromkeys(side.engine for side in found.sides if side.engine)
    text = f"SGLang {' and '.join(versions)}" if versions else ""
    return f"{text} on {found.hardware}" if text and found.hardware else text or "An engine"


def memory_rows(rows: Sequence[SideMemory]) -> list[tuple[str, str, str, str]]:
    """Return each side with its tokens, their share of the larger side's, and its bytes."""
    most = max((row.max_total_num_tokens or 0 for row in rows), default=0)
    return [
        (
            row.side,
            "unknown"
            if row.max_total_num_tokens is None
            else formatting.number(row.max_total_num_tokens),
            formatting.percent(row.max_total_num_tokens / most)
            if most and row.max_total_num_tokens is not None
            else "",
            "unknown" if row.bytes is None else formatting.size(row.bytes),
        )
        for row in rows
    ]
