"""Run one launch from its locks to its end: journal, attempts, and last known good settings.

The inputs are a `PlannedLaunch` and, after a failed attempt, a `Planner`. Every event is journaled
before the service manager and the user receive it. A closed terminal therefore loses no record.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speclaunch.core import ExitCode, LaunchError, replace_file
from speclaunch.serving.launch.attempts import Conclusion, Launching, RestartPolicy, exit_code
from speclaunch.serving.launch.engine_log import Phase
from speclaunch.serving.launch.journal import Journal, forget, remember
from speclaunch.serving.launch.planner import Attempt, EngineCommand, PlannedLaunch, Planner, Rung
from speclaunch.serving.launch.process import Interrupts
from speclaunch.serving.launch.runs import Held, Holder, prune, require_free
from speclaunch.serving.launch.supervisor import (
    EngineOutcome,
    EngineSpec,
    LaunchObserver,
    Notifier,
    undisturbed,
)
from speclaunch.serving.launch.watchdog import SpeculationMonitor, run_hook

if TYPE_CHECKING:
    from speclaunch.serving.launch.client import Verification
    from speclaunch.serving.launch.phases import PhaseTracker

_COURSE_SECONDS = 60.0
"""Interval at which a serving engine's statistics are recorded."""
_EXTEND_SECONDS = 10.0
"""Interval between requests to the service manager for more time during a start."""


class LaunchRun:
    """One launch, and the observer of its engines. `run` executes it."""

    def __init__(self, start: PlannedLaunch, planner: Planner) -> None:
        self._start = start
        self._planner = planner
        self._commands = [(start.changes, start.first)]
        """Planned commands by their changes; a restart reuses the command for the same changes."""
        self._journal: Journal
        self._shown: LaunchObserver
        self._notifier = Notifier(os.environ)
        self._changes: Mapping[str, Any] = {}
        self._phase: Phase | None = None
        self._notified_at = float("-inf")
        self._reported_error: str | None = None
        self._monitor = SpeculationMonitor()
        self._serving_since: float | None = None
        self._noted_at = 0.0
        self._degraded: str | None = None

    def run(self, shown: LaunchObserver) -> Conclusion:
        """Start, supervise and end the launch. Raises LaunchError if the launch may not begin.

        When this returns or raises, the journal records the end.
        """
        start = self._start
        self._shown = undisturbed(shown)
        with Held() as held, Interrupts(exits_after=start.exits_after) as interrupts:
            try:
                url, directory = start.address.url, str(start.directory)
                held.take(start.locks, Holder(os.getpid(), start.name, time.time(), directory, url))
                require_free(start.address.host, start.address.port)
            except LaunchError:
                with contextlib.suppress(OSError):
                    start.directory.rmdir()  # nothing worth a record has happened
                raise
            if start.settings.keep_runs:
                prune(start.settings.keep_runs, start.directory.parent)
            journal = self._journal = Journal(start.directory, start.header, start.secrets)
            try:
                try:
                    for text in start.announced:
                        self.note(text)
                    conclusion = self._attempts(interrupts)
                finally:
                    with contextlib.suppress(OSError):
                        (start.directory / "secrets.yaml").unlink()
            except BaseException as error:
                failed = isinstance(error, LaunchError)
                code = ExitCode.FAILED if failed else ExitCode.INTERNAL
                journal.ended("failed", str(error), code)
                raise
            outcome = conclusion.outcome
            journal.ended(
                outcome.ending.value, outcome.reason, exit_code(outcome), conclusion.explanation
            )
            return conclusion

    def _attempts(self, interrupts: Interrupts) -> Conclusion:
        start = self._start
        ladder = self._planner.next_step if start.recovers else None
        if start.group is None:
            return Launching(
                order=self._order,
                diagnose=self._planner.diagnose,
                version=start.version,
                observer=self,
                interrupts=interrupts,
                policy=RestartPolicy(start.settings.restart, start.restarts),
                ladder=ladder,
                max_attempts=start.max_attempts,
                ended=self._ended,
            ).run(start.changes, start.rung)
        from speclaunch.serving.launch.agreement.ranks import RankLaunching  # noqa: PLC0415 - few need it

        return RankLaunching(
            group=start.group,
            order=self._order,
            diagnose=self._planner.diagnose,
            version=start.version,
            observer=self,
            interrupts=interrupts,
            log=self._log(1),
            ladder=ladder,
            max_attempts=start.max_attempts,
            max_returns=start.settings.restart.limit,
            smoke=start.smoke,
            ended=self._ended,
        ).run()

    def _log(self, number: int) -> Path:
        return self._start.directory / f"engine-{number}.log"

    def _command(self, changes: Mapping[str, Any]) -> EngineCommand:
        for known, command in self._commands:
            if known == changes:
                return command
        command = self._planner.command(changes)
        self._commands.append((changes, command))
        return command

    def _order(self, number: int, changes: Mapping[str, Any]) -> EngineSpec:
        start, command = self._start, self._command(changes)
        if command.secrets_file is not None:
            replace_file(*command.secrets_file)
        return EngineSpec(
            argv=command.argv,
            env=command.env,
            log=self._log(number),
            address=start.address,
            rendered=command.rendered,
            settings=start.settings,
            secrets=command.secrets,
            private_files=(command.secrets_file[0],) if command.secrets_file else (),
            smoke=start.smoke,
            watch=command.watch,
            worker=start.worker,
            degraded=lambda: self._degraded,
        )

    def _ended(self, attempt: Attempt, outcome: EngineOutcome) -> None:
        if self._serving_since is not None:
            self._journal.course(self._monitor.document())
            self._serving_since = None
        self._journal.attempt_ended(
            outcome.ending.value,
            outcome.engine_exit_code,
            outcome.reason,
            outcome.steps,
            attempt.diagnosis,
        )
        cause = attempt.diagnosis.cause if attempt.diagnosis is not None else None
        alone = self._start.group is None
        if alone and cause is not None and cause.memory and attempt.changes:
            # Only if they failed: another start (`--fresh`, recovery off) proves nothing about
            # them.
            forget(self._start.memory_key, attempt.changes)

    # Events of its engines, as their observer

    def attempt(self, number: int, changes: Mapping[str, Any], rung: Rung | None) -> None:
        self._changes, self._phase = changes, None
        command = self._command(changes)
        self._journal.attempt(
            number,
            changes,
            rung,
            command=command.shown_argv,
            environment=command.shown_env,
            log=self._log(number),
        )
        self._check_journal()
        self._shown.attempt(number, changes, rung)

    def spawned(self, pid: int | None, log: Path) -> None:
        self._journal.spawned(pid)
        self._shown.spawned(pid, log)

    def progress(self, tracker: PhaseTracker, seconds: float) -> None:
        """Record milestones, and extend the service manager's start timeout."""
        self._journal.progress(tracker)
        now, phase = time.monotonic(), tracker.current.phase
        if phase is not self._phase and phase is not Phase.READY:
            self._phase = phase
            self._notifier.notify(STATUS=f"starting: {phase.value}")
        alive = self._notifier.watchdog_seconds
        pause = min(_EXTEND_SECONDS, alive / 2) if alive else _EXTEND_SECONDS
        if now - self._notified_at >= pause:
            self._notified_at = now
            extend = {} if phase is Phase.READY else {"EXTEND_TIMEOUT_USEC": 60_000_000}
            self._notifier.notify(WATCHDOG=1, **extend)
        self._shown.progress(tracker, seconds)

    def output(self, lines: Sequence[str]) -> None:
        """Read statistics from `lines`, and show the lines, which the log already contains."""
        if self._serving_since is not None:
            self._read_statistics(lines, time.monotonic())
        self._shown.output(lines)

    def _read_statistics(self, lines: Sequence[str], now: float) -> None:
        """Report a drop in the acceptance length once, and the recovery from it."""
        start = self._start
        changes = self._monitor.read(lines, now - (self._serving_since or now))
        for rank, change in changes:
            text = f"rank {rank}: {change}" if rank else str(change)
            kind = "acceptance dropped" if change.is_drop else "acceptance is back"
            facts = {
                "rank": rank,
                "accept_length": round(change.length, 3),
                "baseline": round(change.baseline, 3),
                "steps": change.steps,
            }
            self._journal.event(kind, text, facts)
            self._notifier.notify(STATUS=text)
            if not change.is_drop:
                self._shown.note(text)
                continue
            self._shown.warn(text)
            if start.stops_degraded:
                self._degraded = f"{text} (serving.on_degraded)"
            if start.on_degraded is not None:
                about = {"run": start.directory.name, "address": start.address.url}
                log = start.directory / "on-degraded.log"
                run_hook(start.on_degraded, {"event": kind, **about, **facts}, log)
        if changes or now - self._noted_at >= _COURSE_SECONDS:
            self._noted_at = now
            self._journal.course(self._monitor.document())

    def ready(self, verification: Verification | None, seconds: float) -> None:
        """Record a ready engine, which counts as serving unless its verification failed."""
        start, journal = self._start, self._journal
        journal.ready(verification, seconds)
        if verification is None or verification.ok:
            self._serving_since = self._noted_at = time.monotonic()
            self._monitor.begin(self._command(self._changes).rendered, self._changes)
            journal.served(self._changes, self._command(self._changes).recipe_diff)
            if start.recovers and start.group is None:
                tokens = journal.document["attempts"][-1]["tokens"]
                remember(start.memory_key, self._changes, start.directory.name, tokens)
            self._notifier.notify(READY=1, STATUS=f"serving at {start.address.url}")
        self._check_journal()
        self._shown.ready(verification, seconds)

    def stopping(self, why: str) -> None:
        self._journal.stopping()
        if not why:
            self._notifier.notify(STOPPING=1, STATUS="stopping the engine")
        self._shown.stopping(why)

    def failed(self, why: str) -> None:
        self._notifier.notify(STATUS=f"starting again: {why}"[:500].replace("\n", " "))
        self._shown.failed(why)

    def waiting(self, seconds: float) -> None:
        self._journal.waiting()
        self._shown.waiting(seconds)

    def note(self, text: str) -> None:
        self._shown.note(text)

    def warn(self, text: str) -> None:
        self._shown.warn(text)

    def _check_journal(self) -> None:
        error = self._journal.error
        if error is not None and error != self._reported_error:
            self._shown.warn(f"cannot write the journal: {error}")
        self._reported_error = error
