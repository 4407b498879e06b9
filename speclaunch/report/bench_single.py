"""One server that was measured alone: on the terminal, as JSON, as Markdown.

Text and Markdown are made of the document, so that they can be shown again.
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from speclaunch.bench.schema import SingleCellRecord, SingleDocument
from speclaunch.bench.single import SENTENCE, Single
from speclaunch.report.bench import NOTHING_COUNTS, bounds_document, memory_document, numbers

_COLUMNS = ("workload", "concurrency", "tokens/s", "latency", "TTFT", "TPOT", "accept length")
_CONTEXT, _GOODPUT = "context", "goodput"


def show_single(console: Console, found: SingleDocument) -> None:
    """The numbers, and that they are no comparison."""
    console.print(Text(found.candidate, "bold"))
    for caveat in found.caveats:
        console.print(Text(f"note: {caveat}", "yellow"))
    if found.objections:
        console.print(Text(NOTHING_COUNTS, "bold red"))
        for one in found.objections:
            console.print(f"  {one.message}", markup=False)
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for number, column in enumerate(_columns(found)):
        table.add_column(column, justify="left" if number == 0 else "right", no_wrap=True)
    for cell in found.cells:
        table.add_row(*_row(cell, found))
    console.print(table)
    for told in found.memory:
        if told.max_total_num_tokens:
            said = f"KV cache: {told.max_total_num_tokens:,} tokens"
            console.print(said, style="dim", highlight=False)
    console.print(found.sentence, markup=False)


def _columns(found: SingleDocument) -> tuple[str, ...]:
    workload, *rest = _COLUMNS
    context = (_CONTEXT,) if any(cell.context for cell in found.cells) else ()
    goodput = (_GOODPUT,) if found.goodput_within else ()
    return (workload, *context, *rest, *goodput)


def _row(cell: SingleCellRecord, found: SingleDocument) -> tuple[str, ...]:
    own = cell.candidate
    per_token = own.time_per_output_token
    values = {
        "workload": cell.workload,
        _CONTEXT: str(cell.context) if cell.context else "as is",
        "concurrency": str(cell.concurrency),
        "tokens/s": f"{own.output_tokens_per_second:.1f}",
        "latency": f"{1000 * own.latency:.0f} ms",
        "TTFT": f"{1000 * own.time_to_first_token:.0f} ms",
        "TPOT": "" if per_token is None else f"{1000 * per_token:.1f} ms",
        "accept length": "" if own.accept_length is None else f"{own.accept_length:.2f}",
        _GOODPUT: "" if own.goodput is None else f"{own.goodput:.2f}/s",
    }
    return tuple(values[name] for name in _columns(found))


def single_markdown(found: SingleDocument) -> str:
    """A table for an issue."""
    head = f"**{found.candidate}**\n" + "".join(f"\nNote: {one}\n" for one in found.caveats)
    if found.objections:
        told = "".join(f"- {one.message}\n" for one in found.objections)
        return f"{head}\n{NOTHING_COUNTS}\n\n{told}"
    columns = _columns(found)
    rows = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    rows += ["| " + " | ".join(_row(cell, found)) + " |" for cell in found.cells]
    return "\n".join([head, *rows, "", found.sentence, ""])


def single_document(found: Single) -> SingleDocument:
    """For programs; times in seconds."""
    return SingleDocument.model_validate(
        {
            "candidate": found.side,
            "counts": not found.objections,
            "objections": [{"kind": one.kind, "message": one.message} for one in found.objections],
            "caveats": list(found.caveats),
            "sentence": SENTENCE,
            "memory": memory_document(found.memory),
            "goodput_within": bounds_document(found.goodput_within),
            "cells": [
                {
                    "workload": cell.at.workload,
                    "context": cell.at.context,
                    "concurrency": cell.at.concurrency,
                    "candidate": {**numbers(cell.numbers), "goodput": cell.goodput},
                }
                for cell in found.cells
            ],
        }
    )
