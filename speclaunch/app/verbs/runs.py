"""`speclaunch ps`, `logs`, `stop` and `runs`: running engines, and the journals of launches."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from speclaunch.app.output.console import err, out, write_exact
from speclaunch.app.output.runs import run_json, show_living, show_run, show_runs, summary_json
from speclaunch.app.verbs.options import OutputFormat
from speclaunch.app.verbs.run_options import (
    FormatOptions,
    LogsOptions,
    RunsListOptions,
    RunsOptions,
    RunsPruneOptions,
    RunsShowOptions,
    StopOptions,
)
from speclaunch.core import (
    ExitCode,
    InputError,
    LaunchError,
    Problem,
    SpeclaunchError,
    redact,
    without_colors,
)
from speclaunch.serving import (
    OUTPUT,
    Follower,
    Run,
    default_directory,
    find_run,
    log_files,
    reread_run,
)
from speclaunch.serving import list_runs as all_runs
from speclaunch.serving import prune as prune_runs

_PAUSE_SECONDS = 0.3


def _living() -> list[Run]:
    """Return the runs whose engine is alive."""
    return [run for run in all_runs() if run.holder is not None]


class NothingRunsError(SpeclaunchError):
    """Error if no engine is running (exit code 3)."""

    exit_code = ExitCode.NOTHING


def running(name: str | None) -> Run:
    """Return the run of a running engine by name; without a name, the only running engine.

    Raises InputError if several engines run or no engine has the name, and NothingRunsError.
    """
    if name is not None:
        return find_run(name, alive=True)
    living = _living()
    if not living:
        raise NothingRunsError(Problem("no engine is running"))
    if len(living) > 1:
        names = ", ".join(run.name for run in living)
        raise InputError(Problem(f"{len(living)} engines are running", help=f"name one of {names}"))
    return living[0]


def ps(options: FormatOptions) -> None:
    """List the running engines that speclaunch supervises."""
    living = _living()
    if options.output_format is OutputFormat.JSON:
        document = {"version": 1, "runs": [summary_json(run) for run in living]}
        out().print_json(json.dumps(document))
        return
    if not living:
        err().print("no engine is running", style="dim")
        return
    show_living(out(), living)


def logs(options: LogsOptions) -> None:
    """Print the log of an engine; with --follow, continue as it grows. Raises InputError."""
    run = _chosen(options.name)
    log = run.directory / OUTPUT if options.own else _log(run, options.attempt)
    if log is None or not (log.exists() or options.follow):
        raise InputError(Problem(f"{run.name} has no such log"))
    follower = Follower(log)
    last: deque[str] = deque(maxlen=options.tail)
    for lines in _written(log, follower):
        if options.tail is None:
            _print(lines)
        else:
            last.extend(lines)
    _print(list(last))
    if not options.follow:
        return
    for _ in pauses(_PAUSE_SECONDS):
        _print(follower.lines())
        while follower.is_behind:
            _print(follower.lines())
        run = reread_run(run)
        latest = _log(run, options.attempt)
        if not options.own and latest is not None and latest != log:
            _print(follower.lines())
            follower.close()
            log, follower = latest, Follower(latest)
        elif run.holder is None:
            _print(follower.lines())
            return


def pauses(seconds: float) -> Iterator[None]:
    """Yield after each pause, until the reader of standard output closes the pipe."""
    output = os.fstat(sys.stdout.fileno())
    closing = select.poll()
    closing.register(sys.stdout.fileno(), 0)  # errors are always reported
    while not closing.poll(seconds * 1000):
        if not os.path.samestat(output, os.fstat(sys.stdout.fileno())):  # main drops a closed pipe
            return
        yield


def _written(log: Path, follower: Follower) -> Iterator[list[str]]:
    """Yield the lines of a log so far, a few MiB at a time; rotated files come first."""
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
    runs = all_runs()
    living = [run for run in runs if run.holder is not None]
    if not runs:
        raise InputError(Problem("no recorded launch"))
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


def stop(options: StopOptions) -> None:
    """Stop engines and wait until they are gone. Raises InputError, LaunchError."""
    if options.every and options.name is not None:
        raise InputError(Problem("--all cannot be combined with a name"))
    chosen = _living() if options.every else [running(options.name)]
    for run in chosen:
        if run.holder is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(run.holder.pid, signal.SIGTERM)
    deadline = time.monotonic() + options.timeout
    for run in chosen:
        while reread_run(run).holder is not None:
            if time.monotonic() > deadline:
                pid = run.holder.pid if run.holder is not None else "?"
                raise LaunchError(
                    f"{run.name} has not ended after {options.timeout:g} s",
                    help=f"kill -9 {pid} ends it; its guard stops the engine",
                )
            time.sleep(0.1)
        out().print(f"{run.name} has ended", markup=False)
    if not chosen:
        err().print("no engine is running", style="dim")


def list_runs(options: RunsOptions | RunsListOptions) -> None:
    """List the launches, newest last. Raises InputError."""
    found = [run for run in all_runs(_checked(options.directory)) if run.document or run.holder]
    if isinstance(options, RunsListOptions) and options.output_format is OutputFormat.JSON:
        document = {"version": 1, "runs": [summary_json(run) for run in found]}
        out().print_json(json.dumps(document))
        return
    if not found:
        err().print(
            f"no recorded launch in {options.directory or default_directory()}", markup=False
        )
        return
    show_runs(out(), found)


def show(options: RunsShowOptions) -> None:
    """Show the history of a launch. Raises InputError."""
    run = find_run(options.name, _checked(options.directory))
    if options.output_format is OutputFormat.JSON:
        out().print_json(json.dumps(run_json(run)))
        return
    show_run(out(), run)


def prune(options: RunsPruneOptions) -> None:
    """Remove logs and journals of ended launches. Raises InputError."""
    removed = prune_runs(options.keep, _checked(options.directory))
    for run in removed:
        out().print(run.name, markup=False)
    err().print(f"{len(removed)} removed", style="dim")


def _checked(directory: Path | None) -> Path | None:
    if directory is None:
        return None
    if not directory.is_dir():
        raise InputError(Problem(f"--dir {directory}: no such directory"))
    return directory.absolute()
