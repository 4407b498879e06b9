"""Terminal output of `bench`: one certificate, one server, two certificates compared, a list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.text import Text

from speclaunch.app.output import bench_words as words
from speclaunch.app.output.tables import plain_table
from speclaunch.measure import (
    BenchListing,
    CellRecord,
    CertificateDocument,
    DifferenceDocument,
    SingleCellRecord,
    SingleDocument,
)

COLORS = {
    **{"pays": "green", "does not pay": "red", "not shown": "yellow"},
    **{"faster": "green", "slower": "red"},
}
NOTHING_COUNTS = "The measurement does not count:"
_TEXT_COLUMNS = ("workload", "")
_SINGLE_COLUMNS = ("concurrency", "tokens/s", "latency", "TTFT", "TPOT", "accept length")


def show_certificate(console: Console, found: CertificateDocument) -> None:
    """Print the verdict, then the numbers that support it."""
    _show_title(console, f"{found.candidate} against {found.baseline}", found)
    if not found.counts:
        return
    heads = columns(found)
    table = plain_table(
        heads, right=[head for head in heads if head not in _TEXT_COLUMNS], overflow="ellipsis"
    )
    for cell in found.cells:
        table.add_row(*map(Text, row(found, cell)), Text(cell.claim, COLORS[cell.claim]))
    console.print(table)
    for cell in found.cells:
        if cell.candidate.accepted_by_position:
            shares = words.percents(cell.candidate.accepted_by_position)
            _show_note(console, f"accepted by position, {words.per_cell(cell)}: {shares}")
    if memory := words.memory(found):
        _show_note(console, memory)
    _show_published(console, found)
    console.print(found.sentence, markup=False)
    for line in words.intervals_mean(found):
        _show_note(console, line)


def _show_title(console: Console, title: str, found: CertificateDocument | SingleDocument) -> None:
    console.print(Text(title, "bold"))
    for caveat in found.caveats:
        console.print(Text(f"note: {caveat}", "yellow"))
    if not found.counts:
        console.print(Text(NOTHING_COUNTS, "bold red"))
        for objection in found.objections:
            console.print(f"  {objection.message}", markup=False)


def _show_note(console: Console, text: str, style: str = "dim") -> None:
    console.print(text, style=style, markup=False, highlight=False)


def columns(found: CertificateDocument) -> list[str]:
    """Return the table columns; context length and goodput only if requested."""
    return [
        "workload",
        *(["context"] if words.has_context(found) else []),
        "concurrency",
        "tokens/s",
        "baseline",
        "speed-up",
        "interval",
        "latency",
        "TPOT",
        "accept length",
        *(["goodput", "baseline", "ratio"] if found.goodput_within else []),
        "",
    ]


def row(found: CertificateDocument, cell: CellRecord) -> list[str]:
    """Return the text of all columns except the last, which is the claim."""
    ours, theirs = cell.candidate, cell.baseline
    return [
        cell.workload,
        *([words.context(cell)] if words.has_context(found) else []),
        str(cell.concurrency),
        words.throughput(ours),
        words.throughput(theirs),
        words.ratio(cell.speed_up.ratio),
        words.span(cell.speed_up),
        words.milliseconds(ours.latency),
        words.milliseconds(ours.time_per_output_token, 1),
        words.length(ours),
        *(words.goodput(cell) if found.goodput_within else []),
    ]


def show_single(console: Console, found: SingleDocument) -> None:
    """Print the numbers of one server, and a note that they are not a comparison."""
    _show_title(console, found.candidate, found)
    if not found.counts:
        return
    heads = single_columns(found)
    table = plain_table(heads, right=heads[1:], overflow="ellipsis")
    for cell in found.cells:
        table.add_row(*single_row(found, cell))
    console.print(table)
    for side in found.memory:
        if side.max_total_num_tokens:
            _show_note(console, f"KV cache: {side.max_total_num_tokens:,} tokens")
    _show_published(console, found)
    console.print(found.sentence, markup=False)


def _show_published(console: Console, found: CertificateDocument | SingleDocument) -> None:
    for line, far_below in words.published(found):
        _show_note(console, line, "yellow" if far_below else "dim")


def single_columns(found: SingleDocument) -> list[str]:
    """Return the table columns of a single server."""
    return [
        "workload",
        *(["context"] if any(cell.context for cell in found.cells) else []),
        *_SINGLE_COLUMNS,
        *(["goodput"] if found.goodput_within else []),
    ]


def single_row(found: SingleDocument, cell: SingleCellRecord) -> list[str]:
    """Return the texts of `single_columns` for a cell."""
    own = cell.candidate
    has_context = any(cell.context for cell in found.cells)
    return [
        cell.workload,
        *([str(cell.context) if cell.context else "as is"] if has_context else []),
        str(cell.concurrency),
        words.throughput(own),
        words.milliseconds(own.latency),
        words.milliseconds(own.time_to_first_token),
        words.milliseconds(own.time_per_output_token, 1),
        words.length(own),
        *(["" if own.goodput is None else f"{own.goodput:.2f}/s"] if found.goodput_within else []),
    ]


def show_difference(console: Console, found: DifferenceDocument) -> None:
    """Print each common cell of two certificates with its verdict, then other differences."""
    console.print(Text(f"{found.after} against {found.before}", "bold"))
    heads = words.DIFFERENCE_COLUMNS
    table = plain_table(heads, right=heads[1:-1], overflow="ellipsis")
    for cell in found.cells:
        *texts, verdict = words.difference_row(cell)
        table.add_row(*map(Text, texts), Text(verdict, COLORS[verdict]))
    console.print(table)
    for line in (*words.alone(found), *found.notes):
        _show_note(console, line, "yellow")
    for diff in found.arguments:
        console.print(f"arguments of the {diff.side}:", markup=False, highlight=False)
        for line in diff.lines:
            color = "green" if line.startswith("+") else "red"
            console.print(Text(f"  {line}", color))
    _show_note(console, words.difference_means(found))


def show_benches(console: Console, found: Iterable[BenchListing]) -> None:
    """Print a table of the stored comparisons, newest last."""
    table = plain_table(("comparison", "state", "rounds", "measured", "sides"))
    for listing in found:
        table.add_row(
            Text(listing.name, "bold"),
            Text(listing.state, COLORS.get(listing.state, "dim")),
            str(listing.rounds),
            listing.updated[:19].replace("T", " "),
            Text(" against ".join(listing.sides)),
        )
    console.print(table)


def list_document(found: Iterable[BenchListing]) -> dict[str, Any]:
    """Return the list as a JSON document."""
    return {
        "version": 1,
        "benches": [
            {
                "name": listing.name,
                "state": listing.state,
                "rounds": listing.rounds,
                "measured": listing.updated,
                "sides": list(listing.sides),
                "path": str(listing.path),
            }
            for listing in found
        ],
    }
