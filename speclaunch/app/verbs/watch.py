"""`speclaunch watch`: speculation metrics of running engines, live or once."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from rich.cells import cell_len, set_cell_size
from rich.live import Live
from rich.text import Text

from speclaunch.app.output.console import out
from speclaunch.app.output.terminal import label_line
from speclaunch.app.verbs.options import OutputFormat
from speclaunch.app.verbs.run_options import WatchOptions
from speclaunch.app.verbs.runs import NothingRunsError, pauses
from speclaunch.core import ExitCode, json_value
from speclaunch.measure import (
    RankSpan,
    WatchDocument,
    WatchedEngine,
    WatchTarget,
    wait_for_polls,
    watch_targets,
    watched_once,
    watching,
)

_WIDE = 130
"""Minimum terminal width, in columns, of the table with all values."""
_EVENTS = 3
_NARROW_COLUMNS = ("accept", "5 min", "usual", "tok/s", "KV", "run", "queue", "graphs")
_WIDE_COLUMNS = (
    *("role", "accept", "5 min", "usual", "rate", "drafted", "steps", "draft", "verified 5m"),
    *("tok/s", "KV", "run", "queue", "retracted 5m", "graphs", "version"),
)


def show_live(records: Callable[[], Sequence[WatchedEngine]], interval: float) -> None:
    """Show the engines full-screen until Ctrl-C."""
    console = out()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        pause = 0.2
        while True:
            time.sleep(pause)
            pause = interval
            size = console.size
            live.update(watch_view(records(), size.width, size.height), refresh=True)


def watch_view(records: Sequence[WatchedEngine], width: int, height: int | None) -> Text:
    """Return the table and details of engines. `height`: terminal lines; None in a pipe."""
    is_only = len(records) == 1
    below = [line for record in records for line in _below(record, is_only=is_only)]
    rows = len(records) + sum(len(record.ranks) for record in records if len(record.ranks) > 1)
    room = 1 << 20 if height is None else height - 3
    has_ranks = rows + len(below) <= room
    table = _rows(records, width, has_ranks=has_ranks)
    lines = [*table, *below[: max(1, room + 1 - len(table))]]
    if height is not None:
        bad = sum(bool(record.problems) for record in records)
        starting = sum(record.is_starting for record in records)
        state = (f"{starting} starting", "yellow") if starting else ("no problems", "green")
        state = (f"{bad} with problems", "bold red") if bad else state
        stamp = (f"   {time.strftime('%H:%M:%S')}   Ctrl-C to quit", "dim")
        lines.insert(0, Text.assemble(("speclaunch watch   ", "bold"), state, stamp))
        for line in lines[:height]:
            line.truncate(width, overflow="ellipsis")
    return Text("\n", no_wrap=True).join(lines[:height])


def _rows(records: Sequence[WatchedEngine], width: int, *, has_ranks: bool) -> list[Text]:
    """Return the table's lines, made without rich, which would use 1% of a core."""
    columns = _WIDE_COLUMNS if width >= _WIDE else _NARROW_COLUMNS
    rows: list[tuple[tuple[str, str], str, dict[str, str], str]] = []
    for record in records:
        color = "green" if record.is_reachable else "yellow" if record.is_starting else "dim"
        mark = ("✗", "red") if record.problems else ("●", color)
        style = "red" if any(item.kind.startswith("acc") for item in record.problems) else "bold"
        rows.append((mark, record.name, _cells(record, record.total), style))
        for span in record.ranks if has_ranks and len(record.ranks) > 1 else ():
            cells = _cells(record, span, is_rank=True)
            rows.append(((" ", ""), f"  rank {span.rank}", cells, ""))
    widths = {name: max(len(name), *(len(row[2][name]) for row in rows)) for name in columns}
    left = width - sum(widths.values()) - 2 * len(columns) - 2
    room = max(12, min(left, max(cell_len(row[1]) for row in rows)))
    head = "".join(f"  {name:>{widths[name]}}" for name in columns)
    found = [Text(f"  {'':{room}}{head}", "dim")]
    for mark, name, cells, style in rows:
        if cell_len(name) > room:
            name = f"{set_cell_size(name, room - 1)}…"  # noqa: PLW2901
        line = Text.assemble(mark, " ", (set_cell_size(name, room), "bold" if style else ""))
        for column in columns:
            shown = f"  {cells[column]:>{widths[column]}}"
            line.append(shown, style if column == "accept" else "")
        found.append(line)
    return found


def _cells(
    record: WatchedEngine, span: RankSpan | None, *, is_rank: bool = False
) -> dict[str, str]:
    span = span or RankSpan(rank="")
    speculates = bool(record.algorithm) and record.role != "prefill"
    is_off = record.source in ("metrics", "log", "server_info") and not record.algorithm
    usual = record.baselines[0].accept_length if record.baselines and not is_rank else None
    found = {
        "accept": "off" if is_off else _text(span.accept_length if speculates else None, ".2f"),
        "5 min": _text(span.accept_length_5m if speculates else None, ".2f"),
        "usual": _text(usual, ".2f"),
        "rate": _text(span.accept_rate if speculates else None, ".0%"),
        "steps": _text(span.steps, "d"),
        "draft": _text(span.draft_tokens, "d"),
        "tok/s": _text(span.tokens_per_second, ",.0f"),
        "KV": _text(span.kv_usage, ".0%"),
        "run": _text(span.running, ",d"),
        "queue": _text(span.queued, ",d"),
        "retracted 5m": _text(span.retracted_5m, ",d"),
        "graphs": _text(span.graph_share, ".0%"),
    }
    own = {
        "role": record.role,
        "drafted": _text(record.speculation_share if speculates else None, ".0%"),
        "verified 5m": _text(record.verifications_5m, ",d"),
        "version": record.version or "-",
    }
    if record.role == "router":
        found["run"] = f"{record.workers_healthy}/{record.workers}"
    return found | (dict.fromkeys(own, "") if is_rank else own)


def _text(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _below(record: WatchedEngine, *, is_only: bool) -> Iterator[Text]:
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
    usual = ", ".join(f"{item.accept_length:.2f} ({item.source})" for item in record.baselines)
    share, verified = record.speculation_share, record.verifications_5m
    rate = f"rate {_text(span.accept_rate, '.0%')}"
    kind = "mean since the start of the engine" if record.is_lifetime else rate
    for label, text in (
        ("model", " ".join(filter(None, (record.model, f"SGLang {record.version or 'unknown'}")))),
        ("drafting", ", ".join(drafting)),
        ("acceptance", f"{kind}; usually {usual or '-'}"),
        ("drafted", "" if share is None else f"{share:.0%} of the generated tokens"),
        (
            "verified",
            "" if verified is None else f"{verified:,} steps of requests finished in 5 min",
        ),
        ("retracted", "" if not span.retracted_5m else f"{span.retracted_5m:,} requests in 5 min"),
    ):
        if text:
            yield label_line(label, text, 12)


def watch(options: WatchOptions) -> ExitCode:
    """Show running engines until Ctrl-C or until the pipe is closed; with --once, only once.

    Raises InputError, NothingRunsError.
    """
    targets = watch_targets(options.names)
    if not targets:
        raise NothingRunsError(
            "no engine is running", help="name a server: speclaunch watch http://HOST:PORT"
        )
    if options.once:
        records = watched_once(targets, options.interval)
        _show(records, options.output_format)
        return exit_code(records)
    _follow(targets, options)
    return ExitCode.CLEAN


def exit_code(records: list[WatchedEngine]) -> ExitCode:
    """Return 2 if any engine is unreachable, else 1 if any has a problem.

    Otherwise return 2 while any engine is starting, else 0.
    """
    if not all(record.is_reachable or record.is_starting for record in records):
        return ExitCode.USAGE
    if any(record.problems for record in records):
        return ExitCode.FAILED
    return ExitCode.USAGE if any(record.is_starting for record in records) else ExitCode.CLEAN


def _follow(targets: list[WatchTarget], options: WatchOptions) -> None:
    with watching(targets, options.interval) as watchers:
        is_drawn = sys.stdout.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
        if options.output_format is OutputFormat.TEXT and is_drawn:
            show_live(lambda: [item.record for item in watchers], options.interval)
        wait_for_polls(watchers, 1, options.interval)
        _show([item.record for item in watchers], options.output_format)
        for _ in pauses(options.interval):
            _show([item.record for item in watchers], options.output_format)


def _show(records: list[WatchedEngine], form: OutputFormat) -> None:
    if form is OutputFormat.JSON:
        import msgspec

        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        document = WatchDocument(at=at, engines=records)
        text = msgspec.json.encode(json_value(document)).decode()
        print(text, flush=True)  # noqa: T201  one line each time
        return
    out().print(watch_view(records, out().width, None))
    sys.stdout.flush()
