"""`speclaunch watch`: the speculation of running engines, live or once."""

from __future__ import annotations

import os
import sys
import time

from speclaunch.app.verbs.options import OutputFormat
from speclaunch.app.verbs.run_options import WatchOptions
from speclaunch.app.verbs.runs import NothingRunsError, pauses
from speclaunch.core import ExitCode, Problem
from speclaunch.measure import (
    WatchDocument,
    WatchedEngine,
    WatchTarget,
    wait_for_polls,
    watch_targets,
    watched_once,
    watching,
)


def watch(options: WatchOptions) -> ExitCode:
    """Show running engines until Ctrl-C or until the pipe is closed; with --once, only once.

    Raises InputError, NothingRunsError.
    """
    targets = watch_targets(options.names)
    if not targets:
        raise NothingRunsError(
            Problem("no engine is running", help="name a server: speclaunch watch http://HOST:PORT")
        )
    if options.once:
        records = watched_once(targets, options.interval)
        _show(records, options.output_format)
        return exit_code(records)
    _follow(targets, options)
    return ExitCode.CLEAN


def exit_code(records: list[WatchedEngine]) -> ExitCode:
    """Return 2 if a server is unreachable, else 1 if an engine has a problem, else 2 while an
    engine starts.
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
            from speclaunch.app.output.watch import show_live

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
        print(msgspec.json.encode(document).decode(), flush=True)  # noqa: T201  one line each time
        return
    from speclaunch.app.output.console import out
    from speclaunch.app.output.watch import watch_view

    out().print(watch_view(records, out().width, None))
    sys.stdout.flush()
