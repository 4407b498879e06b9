"""Past and current launches: a table, and the details of one."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from speclaunch.app.output.tables import label_line, plain_table, sparkline
from speclaunch.core import duration, mapping
from speclaunch.serving import LaunchState, Run

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
        console.print(f"\nserved        {diff or 'the recipe unchanged'}", markup=False)
    ending = run.section("ending")
    if ending:
        console.print(
            f"\nended         {_local(ending.get('ended'))}, exit code {ending.get('exit_code')}, "
            f"{_ending(run)}",
            markup=False,
        )
        if ending.get("explanation"):
            console.print(
                f"              no further attempt: {ending['explanation']}", markup=False
            )


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
    """Return a launch as a JSON list entry."""
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
    """Return the cause of the last engine's failure; empty if it did not fail or is unknown."""
    if not run.section("ending").get("exit_code") or not run.attempts:
        return ""
    last = run.attempts[-1]
    cause = mapping(mapping(last.get("diagnosis")).get("cause"))
    return str(cause.get("title") or last.get("reason") or "").partition("\n")[0]


def _words(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


def _local(stamp: object) -> str:
    """Return a UTC time such as `2026-11-21T10:04:00.123Z` without its fraction."""
    return str(stamp)[:19].replace("T", " ") if stamp else ""
