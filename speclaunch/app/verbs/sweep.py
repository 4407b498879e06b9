"""`speclaunch -m …` and `speclaunch sweep`: run many configurations, show one table."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from msgspec.structs import asdict
from rich.console import Console
from rich.text import Text

from speclaunch.app.output.console import err_lines, out
from speclaunch.app.output.terminal import plain_table
from speclaunch.app.verbs.options import OutputFormat
from speclaunch.app.verbs.run_options import SweepOptions
from speclaunch.app.verbs.shared import chosen_rules, lookup
from speclaunch.core import ExitCode, InputError, speclaunch_home
from speclaunch.deployments import sweep_words
from speclaunch.engine import trust_all
from speclaunch.measure import (
    LOCAL,
    Folder,
    Job,
    JobOptions,
    JobVerdict,
    Planned,
    Row,
    check_jobs,
    refused_row,
    require_launcher,
    run_sweep,
)

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
"""A job and its row; the row is None until the job is done."""


def show_jobs(console: Console, results: Iterable[Result]) -> None:
    """Print the jobs that would run, and the other jobs with reasons."""
    table = plain_table(("recipe", "overrides", "state"), overflow="fold")
    for job, row in results:
        state = "to run" if row is None else row.verdict.value
        state += f": {row.reason}" if row is not None and row.reason else ""
        table.add_row(job.recipe, " ".join(job.varied), Text(state))
    console.print(table)


def row_line(job: Job, row: Row, number: int, total: int) -> str:
    """Return the progress line for a finished job."""
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
        "jobs": [
            {
                "recipe": job.recipe,
                "overrides": list(job.overrides),
                **(dict.fromkeys(Row.__struct_fields__) if row is None else asdict(row)),
                "key": job.key,
            }
            for job, row in results
        ],
        "summary": {
            "jobs": len(results),
            **{
                verdict.value: sum(row is not None and row.verdict is verdict for _, row in results)
                for verdict in JobVerdict
            },
            "not run": sum(row is None for _, row in results),
        },
    }


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def sweep(options: SweepOptions) -> ExitCode:
    """Run a sweep to its end and show its table.

    Raises InputError for invalid arguments, LaunchError if the launcher fails.
    """
    folder, planned = _planned(options)
    as_json = options.output_format is OutputFormat.JSON
    if not options.dry_run:
        require_launcher(planned.launcher)
        folder.create(planned)
    results = _results(folder, planned)
    if options.dry_run:
        if not as_json:
            show_jobs(out(), results)
        code = ExitCode.CLEAN
    else:
        with folder.looked_after():
            if options.retry:
                _forget(folder, planned)
                results = _results(folder, planned)
            finished = _run(folder, planned, results)
        results = _results(folder, planned)
        if not as_json:
            show_table(out(), results)
        if not finished:
            err_lines().print(f"interrupted; continue: speclaunch sweep --resume {folder.path}")
        code = _code(results, finished)
    if as_json:
        typer.echo(json.dumps(sweep_json(str(folder.path), planned.launcher, results), indent=2))
    return code


def _planned(requested: SweepOptions) -> tuple[Folder, Planned]:
    options, words, base = _of_jobs(requested), requested.words, Path.cwd()
    if requested.resume is not None:
        if words or requested.directory is not None:
            message = "--resume reads its arguments from the directory"
            raise InputError(message, help="remove the recipe and --directory")
        folder = Folder(requested.resume).absolute()
        before = folder.planned()
        options, words, base = before.options, before.words, before.directory
        try:
            os.chdir(base)  # its arguments are relative to it
        except OSError as error:
            message = f"cannot enter {base}, the directory of the sweep: {error.strerror}"
            raise InputError(message) from error
    launches = not requested.dry_run and not options.plan
    if launches or options.trust_engine:
        trust_all()
    folders = tuple(Path(name) for name in options.config_dir)
    taken = sweep_words(words, folders)
    found = lookup(
        [Path(name) for name in options.models],
        options.hardware,
        online=options.online,
        assume=options.assume,
    )
    rules = chosen_rules(options.select, options.ignore)
    local = taken.launcher in LOCAL
    jobs = check_jobs(taken.jobs, options, found, rules, local=local, launches=launches)
    planned = Planned(words, jobs, options, taken.launcher, taken.hydra, base)
    if requested.resume is None:
        folder = Folder(requested.directory or _default(planned)).absolute()
    return folder, planned


def _of_jobs(options: SweepOptions) -> JobOptions:
    """Return the options that all jobs share, in the form stored in the sweep's folder."""
    values: dict[str, Any] = {name: getattr(options, name) for name in JobOptions.__struct_fields__}
    for name, value in values.items():
        if isinstance(value, tuple):
            values[name] = tuple(map(str, value))
    return JobOptions(**values)


def _default(planned: Planned) -> Path:
    """Return the default folder; its name is a digest, so the same command resumes the sweep."""
    identity = json.dumps([planned.words, planned.options.identity(), str(planned.directory)])
    name = hashlib.sha256(identity.encode()).hexdigest()[:12]
    return speclaunch_home() / "sweeps" / name


def _results(folder: Folder, planned: Planned) -> list[Result]:
    return [
        (job, folder.row(job.key) if job.refused is None else refused_row(job))
        for job in planned.jobs
    ]


def _forget(folder: Folder, planned: Planned) -> None:
    for job in planned.jobs:
        row = folder.row(job.key)
        if row is not None and (row.verdict.bad or row.verdict is JobVerdict.REFUSED):
            folder.forget(job.key)


def _run(folder: Folder, planned: Planned, results: list[Result]) -> bool:
    say = err_lines()
    total = len({job.key for job in planned.jobs})
    done = {job.key for job, row in results if row is not None}
    left = total - len(done)
    progress = f"{len(done)} of {total} rows done, " if done else ""
    say.print(f"{folder.path}: {progress}{left} to run")
    count = len(done)

    def on_row(job: Job, row: Row) -> None:
        nonlocal count
        count += 1
        say.print(row_line(job, row, count, total))

    return run_sweep(folder, planned, on_row)


def _code(results: list[Result], finished: bool) -> ExitCode:
    if not finished:
        return ExitCode.INTERRUPTED
    bad = any(row is None or row.verdict.bad for _, row in results)
    all_refused = all(row is not None and row.verdict is JobVerdict.REFUSED for _, row in results)
    return ExitCode.FAILED if bad or all_refused else ExitCode.CLEAN
