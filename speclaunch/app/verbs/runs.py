"""`speclaunch ps`, `logs`, `stop` and `runs`: running engines, and the journals of launches."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import signal
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from speclaunch.app.output.console import err, out, write_exact
from speclaunch.app.output.terminal import label_line, plain_table, sparkline
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
    SpeclaunchError,
    duration,
    mapping,
    redact,
    without_colors,
)
from speclaunch.serving import (
    OUTPUT,
    Follower,
    LaunchState,
    Run,
    default_directory,
    find_run,
    log_files,
    reread_run,
)
from speclaunch.serving import list_runs as all_runs
from speclaunch.serving import prune as prune_runs

_COURSE_WIDTH, _MOST_EVENTS = 60, 20
_COLORS = {
    LaunchState.SERVING: "green",
    LaunchState.STARTING: "cyan",
    LaunchState.WAITING: "yellow",
    LaunchState.STOPPING: "yellow",
    LaunchState.LOST: "red",
    LaunchState.ENDED: "dim",
}


def show_runs(console: Console, runs: Iterable[Run]) -> None:
    """Print a table of launches, newest last."""
    table = plain_table(("run", "state", "started", "attempts", "how it ended"))
    for run in runs:
        state = run.state
        table.add_row(
            Text(run.name, "bold"),
            Text(state.value, _COLORS[state]),
            _local(run.document.get("started")),
            str(len(run.attempts)),
            Text(_ending(run)),
        )
    console.print(table)


def show_living(console: Console, runs: Iterable[Run]) -> None:
    """Print a table of running launches."""
    table = plain_table(("run", "state", "for", "process", "address"))
    for run in runs:
        holder = run.holder
        if holder is None:
            continue
        table.add_row(
            Text(run.name, "bold"),
            Text(run.state.value, _COLORS[run.state]),
            duration(time.time() - holder.since),
            str(holder.pid),
            holder.address,
        )
    console.print(table)


def show_run(console: Console, run: Run) -> None:
    """Print all details of one launch."""

    def line(label: str, text: object) -> None:
        if text:
            console.print(label_line(label, str(text), 13))

    state = run.state
    console.print(Text.assemble((run.name, "bold"), "   ", (state.value, _COLORS[state])))
    header = run.header
    recipe, engine, hardware = header.recipe, header.engine, header.hardware
    line("recipe", " ".join([recipe.path, *recipe.overrides]))
    line("engine", f"SGLang {engine.version} ({engine.python})" if engine.version else "")
    line("hardware", f"{hardware.name}:{hardware.count}" if hardware is not None else "")
    line("address", header.address)
    budget = header.plan.budget if header.plan is not None else None
    line("budget", f"{budget.fit}: {budget.why}" if budget is not None else "")
    line("directory", run.directory)
    for attempt in run.attempts:
        _show_attempt(console, attempt)
    for event in run.events[-_MOST_EVENTS:]:
        console.print(label_line(_local(event.get("at")), str(event.get("text")), 21))
    served = run.section("served")
    if served:
        diff = " ".join(_words(served.get("overrides")))
        console.print(f"\nserved        {diff or 'the recipe unchanged'}")
    ending = run.section("ending")
    if ending:
        console.print(
            f"\nended         {_local(ending.get('ended'))}, exit code {ending.get('exit_code')}, "
            f"{_ending(run)}"
        )
        if ending.get("explanation"):
            console.print(f"              no further attempt: {ending['explanation']}")


def run_json(run: Run) -> dict[str, Any]:
    """Return the journal as JSON, with the launch's current state."""
    return {
        "version": 1,
        **run.document,
        "name": run.name,
        "state": run.state.value,
        "directory": str(run.directory),
    }


def summary_json(run: Run) -> dict[str, Any]:
    """Return the summary of a launch as JSON, for lists."""
    holder = run.holder
    return {
        "name": run.name,
        "recipe": run.recipe,
        "state": run.state.value,
        "started": run.document.get("started"),
        "attempts": len(run.attempts),
        "pid": holder.pid if holder is not None else None,
        "address": run.document.get("address"),
        "ending": run.document.get("ending"),
        "directory": str(run.directory),
        "log": str(run.log) if run.log else None,
    }


def _show_attempt(console: Console, attempt: Mapping[str, Any]) -> None:
    changes = " ".join(f"{k}={v}" for k, v in mapping(attempt.get("changes")).items())
    head = Text.assemble(
        (f"\nattempt {attempt.get('number')}", "bold"),
        f"   {changes or 'the recipe unchanged'}",
        (f"   {attempt.get('log')}", "dim"),
    )
    console.print(head)
    rung = mapping(attempt.get("rung"))
    for label in ("why", "cost"):
        if rung.get(label):
            console.print(label_line(label, str(rung[label]), 13))
    words = shlex.join(_words(attempt.get("command")))
    console.print(label_line("command", words, 13), soft_wrap=True)
    for step in attempt.get("milestones") or ():
        milestone = mapping(step)
        began = milestone.get("started")
        when = f"{began:8.1f} s" if isinstance(began, int | float) else ""
        phase = label_line(when, str(milestone.get("phase")), 13)
        console.print(phase.append(f"  {milestone.get('detail')}", "dim"))
    _show_course(console, mapping(attempt.get("course")))
    diagnosis = mapping(attempt.get("diagnosis"))
    cause = mapping(diagnosis.get("cause"))
    if attempt.get("ended"):
        code = attempt.get("exit_code")
        reason = attempt.get("reason") or ""
        console.print(Text(f"  {attempt.get('ending')} (engine's exit code {code})  {reason}"))
    if cause:
        where = f", line {diagnosis['line_number']}" if diagnosis.get("line_number") else ""
        console.print(Text(f"  cause: {cause.get('title')} ({cause.get('name')}{where})"))


def _show_course(console: Console, course: Mapping[str, Any]) -> None:
    for label, name, form in (
        ("acceptance", "accept_length", ".2f"),
        ("tokens/s", "tokens_per_second", ",.0f"),
    ):
        written = course.get(name)
        values = [
            float(value) if isinstance(value, int | float) else None
            for value in (written if isinstance(written, list) else ())
        ]
        known = [value for value in values if value is not None]
        if known:
            bars = sparkline(values, _COURSE_WIDTH)
            span = f"  {min(known):{form}} to {max(known):{form}}"
            console.print(label_line(label, bars, 13).append(span, "dim"))
    seconds = course.get("seconds")
    if isinstance(seconds, int | float) and course.get("accept_length"):
        long = duration(seconds * len(course["accept_length"]))
        console.print(label_line("", f"over {long}, one value per {seconds:g} s", 13), style="dim")


def _ending(run: Run) -> str:
    ending = run.section("ending")
    if ending:
        reason = _cause(run) or str(ending.get("reason") or "").partition("\n")[0]
        text = f"{ending.get('result')}: {reason}" if reason else str(ending.get("result"))
        return text if len(text) <= 110 else f"{text[:109]}…"
    if run.state is LaunchState.LOST:
        return "speclaunch was killed before the launch ended" if run.document else "no journal"
    return ""


def _cause(run: Run) -> str:
    """Return the cause of the last engine's failure; empty without a failure or a known cause."""
    if not run.section("ending").get("exit_code") or not run.attempts:
        return ""
    last = run.attempts[-1]
    cause = mapping(mapping(last.get("diagnosis")).get("cause"))
    return str(cause.get("title") or last.get("reason") or "").partition("\n")[0]


def _words(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


def _local(stamp: object) -> str:
    """Return `2026-11-21T10:04:00.123Z` as `2026-11-21 10:04:00` (UTC); empty for None."""
    return str(stamp)[:19].replace("T", " ") if stamp else ""


_PAUSE_SECONDS = 0.3


def _living() -> list[Run]:
    return [run for run in all_runs() if run.holder is not None]


class NothingRunsError(SpeclaunchError):
    """Error if no engine is running (exit code 3)."""

    exit_code = ExitCode.NOTHING


def running(name: str | None) -> Run:
    """Return the running launch `name`; if `name` is None, the only running launch.

    Raises InputError for an unknown name or, for None, if several run; NothingRunsError if none.
    """
    if name is not None:
        return find_run(name, alive=True)
    living = _living()
    if not living:
        raise NothingRunsError("no engine is running")
    if len(living) > 1:
        names = ", ".join(run.name for run in living)
        raise InputError(f"{len(living)} engines are running", help=f"name one of {names}")
    return living[0]


def ps(options: FormatOptions) -> None:
    """List the running engines that speclaunch supervises."""
    living = _living()
    if options.output_format is OutputFormat.JSON:
        _print_json(living)
    elif living:
        show_living(out(), living)
    else:
        err().print("no engine is running", style="dim")


def _print_json(runs: Iterable[Run]) -> None:
    document = {"version": 1, "runs": [summary_json(run) for run in runs]}
    out().print_json(json.dumps(document))


def logs(options: LogsOptions) -> None:
    """Print the log of an engine; with --follow, continue as it grows. Raises InputError."""
    run = _chosen(options.name)
    log = run.directory / OUTPUT if options.own else _log(run, options.attempt)
    if log is None or not (log.exists() or options.follow):
        help_ = f"list its logs: speclaunch runs show {run.name}"
        raise InputError(f"{run.name} has no such log", help=help_)
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
    """Yield after each pause until the reader of standard output closes the pipe."""
    output = os.fstat(sys.stdout.fileno())
    closing = select.poll()
    closing.register(sys.stdout.fileno(), 0)  # errors are always reported
    while not closing.poll(seconds * 1000):
        if not os.path.samestat(output, os.fstat(sys.stdout.fileno())):  # main drops a closed pipe
            return
        yield


def _written(log: Path, follower: Follower) -> Iterator[list[str]]:
    """Yield the existing lines of a log, a few MiB at a time, rotated files first."""
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
    if not runs:
        raise InputError("no recorded launch", help="start a launch: speclaunch recipe=NAME")
    return ([run for run in runs if run.holder is not None] or runs)[-1]


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
        raise InputError("--all cannot be combined with a name")
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
                    help=f"run `kill -9 {pid}`; the guard then stops the engine",
                )
            time.sleep(0.1)
        out().print(f"{run.name} has ended")
    if not chosen:
        err().print("no engine is running", style="dim")


def list_runs(options: RunsOptions | RunsListOptions) -> None:
    """List the launches, newest last. Raises InputError."""
    found = [run for run in all_runs(_checked(options.directory)) if run.document or run.holder]
    if isinstance(options, RunsListOptions) and options.output_format is OutputFormat.JSON:
        _print_json(found)
    elif found:
        show_runs(out(), found)
    else:
        err().print(f"no recorded launch in {options.directory or default_directory()}")


def show(options: RunsShowOptions) -> None:
    """Show the history of a launch. Raises InputError."""
    run = find_run(options.name, _checked(options.directory))
    if options.output_format is OutputFormat.JSON:
        out().print_json(json.dumps(run_json(run)))
    else:
        show_run(out(), run)


def prune(options: RunsPruneOptions) -> None:
    """Remove logs and journals of ended launches. Raises InputError."""
    removed = prune_runs(options.keep, _checked(options.directory))
    for run in removed:
        out().print(run.name)
    err().print(f"{len(removed)} removed", style="dim")


def _checked(directory: Path | None) -> Path | None:
    if directory is None:
        return None
    if not directory.is_dir():
        raise InputError(f"--dir {directory}: no such directory")
    return directory.absolute()
