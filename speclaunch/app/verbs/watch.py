"""`speclaunch watch`: the speculation of running engines, live or once."""

from __future__ import annotations

import sys
import threading
import time

from speclaunch.app.verbs.options import OutputFormat
from speclaunch.app.verbs.run_options import WatchOptions
from speclaunch.app.verbs.runs import NothingRunsError
from speclaunch.core import ExitCode, Problem
from speclaunch.measure import (
    EngineWatcher,
    WatchDocument,
    WatchedEngine,
    WatchTarget,
    watch_targets,
    watched_once,
)


def watch(options: WatchOptions) -> ExitCode:
    """Show running engines until Ctrl-C; with --once, their state.

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
    """Return 2 if a server is unreachable, 1 if something is wrong, else 0."""
    if not all(record.is_reachable for record in records):
        return ExitCode.USAGE
    return ExitCode.FAILED if any(record.problems for record in records) else ExitCode.CLEAN


def _follow(targets: list[WatchTarget], options: WatchOptions) -> None:
    """Show the servers until Ctrl-C."""
    ended = threading.Event()
    watchers = [EngineWatcher(target) for target in targets]
    for watcher in watchers:
        threading.Thread(target=watcher.run, args=(ended, options.interval), daemon=True).start()
    try:
        if options.output_format is OutputFormat.TEXT and sys.stdout.isatty():
            from speclaunch.app.output.watch import show_live

            show_live(lambda: _records(watchers), options.interval)
        _wait_for_first(watchers, options.interval)
        while True:
            _show(_records(watchers), options.output_format)
            time.sleep(options.interval)
    finally:
        ended.set()


def _wait_for_first(watchers: list[EngineWatcher], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not all(watcher.polls for watcher in watchers):
        time.sleep(0.05)


def _records(watchers: list[EngineWatcher]) -> list[WatchedEngine]:
    return [watcher.record for watcher in watchers]


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
