"""Watched engines on a terminal: a table, what is wrong, and details of a single engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from speclaunch.app.output.console import out
from speclaunch.app.output.tables import label_line, plain_table
from speclaunch.measure import RankSpan, WatchedEngine

_WIDE = 130
"""Columns from which more values are shown."""
_EVENTS = 3
_NARROW_COLUMNS = ("accept", "5 min", "usual", "tok/s", "KV", "run", "queue", "graphs")
_WIDE_COLUMNS = (
    *("role", "accept", "5 min", "usual", "rate", "drafted", "steps", "draft", "verified 5m"),
    *("tok/s", "KV", "run", "queue", "retracted 5m", "graphs", "version"),
)


def show_live(records: Callable[[], Sequence[WatchedEngine]], interval: float) -> None:
    """Draw the engines in the whole terminal until Ctrl-C."""
    console = out()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        pause = 0.2
        while True:
            time.sleep(pause)
            pause = interval
            size = console.size
            live.update(watch_view(records(), size.width, size.height), refresh=True)


def watch_view(records: Sequence[WatchedEngine], width: int, height: int | None) -> RenderableType:
    """Return the picture of the engines. `height`: lines of a terminal; None in a pipe."""
    below = [line for record in records for line in _below(record, is_only=len(records) == 1)]
    rows = len(records) + sum(len(record.ranks) for record in records if len(record.ranks) > 1)
    room = None if height is None else height - 3
    has_ranks = room is None or rows + len(below) <= room
    if room is not None:
        used = rows if has_ranks else len(records)
        below = below[: max(1, room - used)]
    parts: list[RenderableType] = []
    if height is not None:
        bad = sum(bool(record.problems) for record in records)
        state = (f"{bad} wrong", "bold red") if bad else ("all well", "green")
        stamp = (f"   {time.strftime('%H:%M:%S')}   Ctrl-C ends", "dim")
        parts.append(Text.assemble(("speclaunch watch   ", "bold"), state, stamp))
    parts.append(_table(records, is_wide=width >= _WIDE, has_ranks=has_ranks, width=width))
    for line in below:
        line.no_wrap, line.overflow = height is not None, "ellipsis"
        parts.append(line)
    return Group(*parts)


def _table(
    records: Sequence[WatchedEngine], *, is_wide: bool, has_ranks: bool, width: int
) -> Table:
    columns = _WIDE_COLUMNS if is_wide else _NARROW_COLUMNS
    table = plain_table(("", "engine", *columns), right=set(columns), overflow="ellipsis")
    table.columns[1].max_width = max(16, min(48, width - 8 * len(columns)))
    for record in records:
        bad = bool(record.problems)
        mark = Text("✗", "red") if bad else Text("●", "green" if record.is_reachable else "dim")
        cells = _cells(record, record.total)
        if record.role == "router":
            cells |= {"run": f"{record.workers_healthy}/{record.workers}"}
        table.add_row(mark, Text(record.name, "bold"), *(cells[name] for name in columns))
        if has_ranks and len(record.ranks) > 1:
            for span in record.ranks:
                cells = _cells(record, span, is_rank=True)
                table.add_row("", f"  rank {span.rank}", *(cells[name] for name in columns))
    return table


def _cells(
    record: WatchedEngine, span: RankSpan | None, *, is_rank: bool = False
) -> dict[str, RenderableType]:
    """Return the texts of a row by column."""
    span = span or RankSpan(rank="")
    usual = record.baselines[0].accept_length if record.baselines and not is_rank else None
    is_low = any(problem.kind.startswith("acceptance") for problem in record.problems)
    speculates = bool(record.algorithm) and not record.role.startswith("pre")
    now = "off" if record.is_reachable and record.total and not record.algorithm else "-"
    length = f"{span.accept_length:.2f}" if span.accept_length and speculates else now
    return {
        "role": "" if is_rank else record.role,
        "accept": Text(length, "red" if is_low else "bold"),
        "5 min": _text(span.accept_length_5m, ".2f"),
        "usual": _text(usual, ".2f"),
        "rate": _text(span.accept_rate if speculates else None, ".0%"),
        "drafted": _text(None if is_rank else record.speculation_share, ".0%"),
        "steps": _text(span.steps, "d"),
        "draft": _text(span.draft_tokens, "d"),
        "verified 5m": _text(None if is_rank else record.verifications_5m, ",d"),
        "tok/s": _text(span.tokens_per_second, ",.0f"),
        "KV": _text(span.kv_usage, ".0%"),
        "run": _text(span.running, ",d"),
        "queue": _text(span.queued, ",d"),
        "retracted 5m": _text(span.retracted_5m, ",d"),
        "graphs": _text(span.graph_share, ".0%"),
        "version": "" if is_rank else record.version or "-",
    }


def _text(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _below(record: WatchedEngine, *, is_only: bool) -> Iterator[Text]:
    """Yield the lines below the table: problems first."""
    name = "" if is_only else f"{record.name}: "
    for problem in record.problems:
        yield Text.assemble(("✗ ", "red"), f"{name}{problem.text}")
    for note in record.notes:
        yield Text(f"  {name}{note}", "dim")
    if is_only:
        yield from _details(record)
    for event in record.events[-_EVENTS:]:
        at = event.at[11:19]
        yield Text.assemble((f"  {at}  ", "dim"), f"{name}{event.text}")


def _details(record: WatchedEngine) -> Iterator[Text]:
    span = record.total
    if span is None:
        return
    drafting = [
        record.algorithm or "no speculation",
        *([f"{span.steps} steps"] if span.steps else []),
        *([f"{span.draft_tokens} draft tokens"] if span.draft_tokens else []),
    ]
    usual = ", ".join(f"{one.accept_length:.2f} ({one.source})" for one in record.baselines)
    share, verified = record.speculation_share, record.verifications_5m
    mean = "mean since the start of the engine" if record.is_lifetime else ""
    for label, text in (
        ("model", " ".join(filter(None, (record.model, f"SGLang {record.version or 'unknown'}")))),
        ("drafting", ", ".join(drafting)),
        ("acceptance", mean or f"rate {_text(span.accept_rate, '.0%')}; usually {usual or '-'}"),
        ("drafted", "" if share is None else f"{share:.0%} of the generated tokens"),
        (
            "verified",
            "" if verified is None else f"{verified:,} steps of requests finished in 5 min",
        ),
        ("retracted", "" if not span.retracted_5m else f"{span.retracted_5m:,} requests in 5 min"),
    ):
        if text:
            yield label_line(label, text, 12)
