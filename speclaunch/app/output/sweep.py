"""Output of a sweep: the jobs to run, each row as it arrives, and a final table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import asdict
from rich.console import Console
from rich.text import Text

from speclaunch.app.output.tables import plain_table
from speclaunch.measure import Job, JobVerdict, Row

_COLORS = {
    JobVerdict.SERVED: "green",
    JobVerdict.FITS: "green",
    JobVerdict.TIGHT: "yellow",
    JobVerdict.FAILED: "bold red",
    JobVerdict.FAILS: "bold red",
    JobVerdict.REFUSED: "yellow",
    JobVerdict.UNKNOWN: "dim",
}
Result = tuple[Job, Row | None]
"""A job and its row, or None if the job is not done."""


def show_jobs(console: Console, results: Iterable[Result]) -> None:
    """Print the jobs that would run, and the jobs that would not."""
    table = plain_table(("recipe", "overrides", "state"), overflow="fold")
    for job, row in results:
        state = "to run" if row is None else row.verdict.value
        state += f": {row.reason}" if row is not None and row.reason else ""
        table.add_row(job.recipe, " ".join(job.varied), Text(state))
    console.print(table)


def row_line(job: Job, row: Row, number: int, total: int) -> str:
    """Return the line to print when a row arrives."""
    line = f"[{number}/{total}] {' '.join((job.recipe, *job.varied))}: {row.verdict.value}"
    if row.acceptance_length is not None:
        line += f", acceptance length {row.acceptance_length:.2f}"
    if row.ready_seconds is not None:
        line += f", ready after {row.ready_seconds:.1f} s"
    return line + (f": {row.reason}" if row.reason and row.verdict.bad else "")


def show_table(console: Console, results: Sequence[Result]) -> None:
    """Print one line per job, in command-line order."""
    columns = ("recipe", "overrides", "verdict", "acceptance", "ready", "KV tokens", "why")
    table = plain_table(columns, overflow="fold")
    for job, row in results:
        name = (job.recipe, " ".join(job.varied))
        if row is None:
            table.add_row(*name, Text("not run", "dim"))
            continue
        table.add_row(
            *name,
            Text(row.verdict.value, _COLORS[row.verdict]),
            _number(row.acceptance_length, "{:.2f}"),
            _number(row.ready_seconds, "{:.1f} s"),
            _number(row.kv_tokens, "{:,}"),
            Text(row.reason or ""),
        )
    console.print(table)


def sweep_json(folder: str, launcher: str, results: Sequence[Result]) -> Mapping[str, Any]:
    """Return the sweep as one JSON document (docs/reference/sweep.md)."""
    return {
        "version": 1,
        "directory": folder,
        "launcher": launcher,
        "jobs": [_job_json(job, row) for job, row in results],
        "summary": {
            "jobs": len(results),
            **{
                verdict.value: sum(row is not None and row.verdict is verdict for _, row in results)
                for verdict in JobVerdict
            },
            "not run": sum(row is None for _, row in results),
        },
    }


def _job_json(job: Job, row: Row | None) -> Mapping[str, Any]:
    result = dict.fromkeys(Row.__struct_fields__) if row is None else asdict(row)
    about = {"recipe": job.recipe, "overrides": list(job.overrides)}
    return {**about, **result, "key": job.key}


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
