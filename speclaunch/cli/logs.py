"""`speclaunch logs`: what an engine prints."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from speclaunch.errors import InputError, Problem
from speclaunch.launch.detach import OUTPUT
from speclaunch.launch.log_follower import Follower, log_files
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
    last: deque[str] = deque(maxlen=tail)
    for lines in _written(log, follower):
        if tail is None:
            _print(lines)
        else:
            last.extend(lines)
    _print(list(last))
    while follow:
        _print(follower.lines())
        if follower.is_behind:
            continue
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


def _written(log: Path, follower: Follower) -> Iterator[list[str]]:
    """The lines of a log so far, a few MiB at a time; those put aside come first."""
    for path in log_files(log):
        reader = follower if path == log else Follower(path)
        yield reader.lines()
        while reader.is_behind:
            yield reader.lines()
        if reader is not follower:
            if reader.unfinished:
                yield [reader.unfinished]
            reader.close()


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
