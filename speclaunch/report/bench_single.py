"""One server that was measured alone: on the terminal, as JSON, as Markdown."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from speclaunch.bench.single import SENTENCE, Single, SingleCell
from speclaunch.report.bench import NOTHING_COUNTS, bounds_document, memory_document, numbers

_COLUMNS = ("workload", "concurrency", "tokens/s", "latency", "TTFT", "TPOT", "accept length")
_CONTEXT, _GOODPUT = "context", "goodput"


def show_single(console: Console, found: Single) -> None:
    """The numbers, and that they are no comparison."""
    console.print(Text(found.side, "bold"))
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
        if told.tokens:
            console.print(f"KV cache: {told.tokens:,} tokens", style="dim", highlight=False)
    console.print(SENTENCE, markup=False)


def _columns(found: Single) -> tuple[str, ...]:
    workload, *rest = _COLUMNS
    context = (_CONTEXT,) if any(cell.at.context for cell in found.cells) else ()
    goodput = (_GOODPUT,) if found.goodput_within else ()
    return (workload, *context, *rest, *goodput)


def _row(cell: SingleCell, found: Single) -> tuple[str, ...]:
    own = cell.numbers
    values = {
        "workload": cell.at.workload,
        _CONTEXT: str(cell.at.context) if cell.at.context else "as is",
        "concurrency": str(cell.at.concurrency),
        "tokens/s": f"{own.throughput:.1f}",
        "latency": f"{1000 * own.latency:.0f} ms",
        "TTFT": f"{1000 * own.first_token:.0f} ms",
        "TPOT": "" if own.per_token is None else f"{1000 * own.per_token:.1f} ms",
        "accept length": "" if own.accept_length is None else f"{own.accept_length:.2f}",
        _GOODPUT: "" if cell.goodput is None else f"{cell.goodput:.2f}/s",
    }
    return tuple(values[name] for name in _columns(found))


def single_markdown(found: Single) -> str:
    """A table for an issue."""
    head = f"**{found.side}**\n" + "".join(f"\nNote: {one}\n" for one in found.caveats)
    if found.objections:
        told = "".join(f"- {one.message}\n" for one in found.objections)
        return f"{head}\n{NOTHING_COUNTS}\n\n{told}"
    columns = _columns(found)
    rows = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    rows += ["| " + " | ".join(_row(cell, found)) + " |" for cell in found.cells]
    return "\n".join([head, *rows, "", SENTENCE, ""])


def single_document(found: Single) -> dict[str, Any]:
    """For programs; times in seconds. As a comparison's, without what compares."""
    return {
        "version": 1,
        "candidate": found.side,
        "baseline": None,
        "counts": not found.objections,
        "objections": [{"kind": one.kind, "message": one.message} for one in found.objections],
        "caveats": list(found.caveats),
        "claim": None,
        "sentence": SENTENCE,
        "memory": memory_document(found.memory),
        "goodput_within": bounds_document(found.goodput_within),
        "cells": [
            {
                "workload": cell.at.workload,
                "context": cell.at.context,
                "concurrency": cell.at.concurrency,
                "candidate": {
                    **numbers(cell.numbers),
                    **({"goodput": cell.goodput} if found.goodput_within else {}),
                },
            }
            for cell in found.cells
        ],
    }
