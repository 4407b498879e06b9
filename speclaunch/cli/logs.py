"""`speclaunch logs`: what an engine prints."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from speclaunch.errors import InputError, Problem
from speclaunch.launch.detach import OUTPUT
from speclaunch.launch.log_follower import Follower, lines_of_file, log_files
from speclaunch.launch.runs import Run, again, find_run, list_runs
from speclaunch.printable import without_colors
from speclaunch.redaction import redact
from speclaunch.report.console import write_exact

_PAUSE_SECONDS = 0.3


def logs(
    name: Annotated[
        str | None,
        typer.Argument(help="A run, its recipe, port or process. Default: the latest."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the log as it grows.")
    ] = False,
    tail: Annotated[
        int | None,
        typer.Option("--tail", "-n", min=0, help="Print only this many of the last lines."),
    ] = None,
    attempt: Annotated[
        int | None,
        typer.Option("--attempt", min=1, help="Number of the attempt. Default: the last."),
    ] = None,
    own: Annotated[
        bool,
        typer.Option("--speclaunch", help="Print the output of the detached speclaunch itself."),
    ] = False,
) -> None:
    """Print the log of an engine; --follow continues across rotations and attempts."""
    run = _chosen(name)
    log = run.directory / OUTPUT if own else _log(run, attempt)
    if log is None or not (log.exists() or follow):
        raise InputError(Problem(f"{run.name} does not have this log"))
    follower = Follower(log)
    before: list[str] = []
    for path in log_files(log):
        if path != log:
            before += lines_of_file(path)
    _print((before + follower.lines())[-tail if tail else None :] if tail != 0 else [])
    while follow:
        _print(follower.lines())
        run = again(run)
        latest = _log(run, attempt)
        if not own and latest is not None and latest != log:
            _print(follower.lines())
            follower.close()
            log, follower = latest, Follower(latest)
        elif run.holder is None:
            _print(follower.lines())
            return
        time.sleep(_PAUSE_SECONDS)


def _chosen(name: str | None) -> Run:
    if name is not None:
        return find_run(name)
    runs = list_runs()
    living = [run for run in runs if run.holder is not None]
    if not runs:
        raise InputError(Problem("no launch is recorded"))
    return (living or runs)[-1]


def _log(run: Run, attempt: int | None) -> Path | None:
    if attempt is None:
        return run.log
    return run.directory / f"engine-{attempt}.log"


def _print(lines: list[str]) -> None:
    if lines:
        colored = not sys.stdout.isatty()
        shown = [redact(line if colored else without_colors(line)) for line in lines]
        write_exact("\n".join(shown) + "\n")
        sys.stdout.flush()
