"""A certificate on the terminal, and its numbers for the document of all its forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from speclaunch.bench.certificate import Cell, Certificate, Goodput
from speclaunch.bench.cost import Cost
from speclaunch.bench.goodput import Bound
from speclaunch.bench.measurement import Summary
from speclaunch.bench.schema import CellRecord, CertificateDocument
from speclaunch.bench.statistics import Interval
from speclaunch.bench.telling import CONCURRENCY
from speclaunch.report import bench_words as words

COLORS = {"pays": "green", "does not pay": "red", "not shown": "yellow"}
NOTHING_COUNTS = "The measurement does not count:"


def show_certificate(console: Console, found: CertificateDocument) -> None:
    """The verdict, then the numbers it rests on."""
    console.print(Text(f"{found.candidate} against {found.baseline}", "bold"))
    for caveat in found.caveats:
        console.print(Text(f"note: {caveat}", "yellow"))
    if not found.counts:
        console.print(Text(NOTHING_COUNTS, "bold red"))
        for one in found.objections:
            console.print(f"  {one.message}", markup=False)
        return
    console.print(_table(found))
    for cell in found.cells:
        if cell.candidate.accepted_by_position:
            shares = words.percents(cell.candidate.accepted_by_position)
            console.print(
                f"accepted by position, {words.per_cell(cell)}: {shares}",
                style="dim",
                markup=False,
                highlight=False,
            )
    if memory := words.memory(found):
        console.print(memory, style="dim", markup=False, highlight=False)
    console.print(found.sentence, markup=False)
    for line in words.intervals_mean(found):
        console.print(line, style="dim", highlight=False)


def _table(found: CertificateDocument) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns(found):
        is_text = column in ("workload", "")
        table.add_column(column, justify="left" if is_text else "right", no_wrap=True)
    for cell in found.cells:
        table.add_row(*map(Text, row(found, cell)), Text(cell.claim, COLORS[cell.claim]))
    return table


def columns(found: CertificateDocument) -> list[str]:
    """The columns of its table; lengths of context and goodput where they were asked for."""
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
    """What stands in all columns but the last one, which is the claim."""
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


def document(found: Certificate) -> dict[str, Any]:
    """For programs; times in seconds."""
    return {
        "version": 1,
        "candidate": found.candidate,
        "baseline": found.baseline,
        "counts": not found.objections,
        "objections": [{"kind": one.kind, "message": one.message} for one in found.objections],
        "claim": found.claim.value if not found.objections else None,
        "sentence": found.sentence,
        "error_rate": found.error_rate,
        "caveats": list(found.caveats),
        "stops_paying": [
            {
                "workload": one.workload,
                "along": one.along,
                "context": one.fixed if one.along == CONCURRENCY else None,
                "concurrency": None if one.along == CONCURRENCY else one.fixed,
                "start": one.start,
                "claim": one.claim.value,
            }
            for one in found.stops
        ],
        "memory": memory_document(found.memory),
        "goodput_within": bounds_document(found.goodput_within),
        "starts": found.starts,
        "cells": [
            {
                "workload": cell.workload,
                "context": cell.context,
                "concurrency": cell.concurrency,
                "claim": cell.claim.value,
                "speed_up": _plain(cell.throughput),
                "latency_ratio": _plain(cell.latency),
                "candidate": {**numbers(cell.candidate), **_goodput_of(cell, "candidate")},
                "baseline": {**numbers(cell.baseline), **_goodput_of(cell, "baseline")},
                **({"goodput": _ratio(cell.goodput)} if cell.goodput is not None else {}),
            }
            for cell in found.cells
        ],
    }


def memory_document(found: Sequence[Cost]) -> list[dict[str, Any]]:
    """What each side costs; null: not told."""
    return [
        {
            "side": one.side,
            "max_total_num_tokens": one.tokens,
            "bytes": one.bytes,
            "bytes_measured": one.measured,
        }
        for one in found
    ]


def bounds_document(within: Sequence[Bound]) -> dict[str, float]:
    """Milliseconds by metric."""
    return {one.metric: one.most for one in within}


def _goodput_of(cell: Cell, side: str) -> dict[str, Any]:
    return {} if cell.goodput is None else {"goodput": getattr(cell.goodput, side)}


def _ratio(found: Goodput) -> dict[str, Any]:
    return {
        "candidate": found.candidate,
        "baseline": found.baseline,
        "candidate_share": found.candidate_share,
        "baseline_share": found.baseline_share,
        "ratio": None if found.ratio is None else _plain(found.ratio),
    }


def _plain(found: Interval) -> dict[str, Any]:
    return {"ratio": found.ratio, "low": found.low, "high": found.high, "pairs": found.pairs}


def numbers(found: Summary) -> dict[str, Any]:
    """One side of a cell."""
    return {
        "requests": found.requests,
        "output_tokens_per_second": found.throughput,
        "latency": found.latency,
        "time_to_first_token": found.first_token,
        "time_per_output_token": found.per_token,
        "prompt_tokens": found.prompt,
        "accept_length": found.accept_length,
        "accepted_by_position": list(found.accepted),
    }
