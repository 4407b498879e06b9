"""The course of a launch that may begin: locks, journal, attempts, memory of what served.

It needs nothing of what planned it but a `Start`, and a `Planner` where an attempt failed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from speclaunch.errors import ExitCode, LaunchError
from speclaunch.launch import last_good
from speclaunch.launch.atomic_files import write_private
from speclaunch.launch.attempts import Conclusion, Launching
from speclaunch.launch.free_port import require_free
from speclaunch.launch.journal import Journal
from speclaunch.launch.notify import Notifier
from speclaunch.launch.observer import LaunchObserver
from speclaunch.launch.process import Interrupts
from speclaunch.launch.recording_observer import RecordingObserver
from speclaunch.launch.restart import RestartPolicy
from speclaunch.launch.runs import Held, Holder, prune
from speclaunch.launch.start import Attempt, EngineCommand, Planner, Start
from speclaunch.launch.supervisor import Ending, EngineOutcome, Order

if TYPE_CHECKING:
    from speclaunch.launch.agreement.group import RankGroup


class Course:
    """One launch. `run` does it."""

    def __init__(self, start: Start, planner: Planner) -> None:
        self._start = start
        self._planner = planner
        self._commands = [(start.changes, start.first)]
        """What was planned so far; a restart runs what has run before."""

    def run(self, shown: LaunchObserver) -> Conclusion:
        """Start, look after, and end it. Raises LaunchError where it may not begin at all.

        The journal has the end of it when this returns or raises.
        """
        start = self._start
        with Held() as held, Interrupts(for_good=start.for_good) as interrupts:
            try:
                held.take(start.locks, self._holder())
                require_free(start.address.host, start.address.port)
            except LaunchError:
                with contextlib.suppress(OSError):
                    start.directory.rmdir()  # nothing has happened that is worth a record
                raise
            if start.settings.keep_runs:
                prune(start.settings.keep_runs, start.directory.parent)
            journal = Journal(start.directory, start.about, start.secrets)
            try:
                try:
                    conclusion = self._launch(shown, journal, interrupts)
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

    def _launch(
        self, shown: LaunchObserver, journal: Journal, interrupts: Interrupts
    ) -> Conclusion:
        start = self._start
        recorded = RecordingObserver(
            shown,
            journal,
            Notifier(os.environ),
            lambda changes: self._served(journal, changes),
            url=start.address.url,
        )
        for text in start.announced:
            recorded.note(text)
        if start.group is not None:
            return self._agree(start.group, recorded, journal, interrupts)
        launching = Launching(
            order=lambda number, changes: self._order(recorded, number, changes),
            diagnose=self._planner.diagnose,
            version=start.version,
            observer=recorded,
            interrupts=interrupts,
            policy=RestartPolicy(start.settings.restart, start.restarts),
            ladder=self._planner.next_step if start.recovers else None,
            max_attempts=start.max_attempts,
            ended=lambda attempt, outcome: self._ended(journal, attempt, outcome),
        )
        return launching.run(start.changes, start.rung)

    def _agree(
        self,
        group: RankGroup,
        recorded: RecordingObserver,
        journal: Journal,
        interrupts: Interrupts,
    ) -> Conclusion:
        """The same as one of several ranks."""
        from speclaunch.launch.agreement.ranks import RankLaunching  # noqa: PLC0415 - few need it

        start = self._start
        return RankLaunching(
            group=group,
            order=lambda number, changes: self._order(recorded, number, changes),
            diagnose=self._planner.diagnose,
            version=start.version,
            observer=recorded,
            interrupts=interrupts,
            log=start.directory / "engine-1.log",
            ladder=self._planner.next_step if start.recovers else None,
            max_attempts=start.max_attempts,
            max_returns=start.settings.restart.limit,
            smoke=start.smoke,
            ended=lambda attempt, outcome: self._ended(journal, attempt, outcome),
        ).run()

    def _command(self, changes: Mapping[str, Any]) -> EngineCommand:
        for known, command in self._commands:
            if known == changes:
                return command
        command = self._planner.command(changes)
        self._commands.append((changes, command))
        return command

    def _order(self, recorded: RecordingObserver, number: int, changes: Mapping[str, Any]) -> Order:
        start, command = self._start, self._command(changes)
        if command.secrets_file is not None:
            write_private(*command.secrets_file)
        recorded.command, recorded.environment = command.shown_argv, command.shown_env
        recorded.log = start.directory / f"engine-{number}.log"
        return Order(
            argv=command.argv,
            env=command.env,
            log=recorded.log,
            address=start.address,
            asked=command.asked,
            settings=start.settings,
            secrets=command.secrets,
            private_files=(command.secrets_file[0],) if command.secrets_file else (),
            smoke=start.smoke,
            watch=command.watch,
            worker=start.worker,
        )

    def _served(self, journal: Journal, changes: Mapping[str, Any]) -> None:
        journal.served(changes, self._command(changes).recipe_diff)
        tokens = journal.document["attempts"][-1]["tokens"]
        if self._start.recovers and self._start.group is None:
            name = self._start.directory.name
            last_good.remember(self._start.memory_key, changes, name, tokens)

    def _ended(self, journal: Journal, attempt: Attempt, outcome: EngineOutcome) -> None:
        journal.attempt_ended(
            outcome.ending.value,
            outcome.engine_exit_code,
            outcome.reason,
            outcome.steps,
            attempt.diagnosis,
        )
        cause = attempt.diagnosis.cause if attempt.diagnosis is not None else None
        alone = self._start.group is None
        if alone and cause is not None and cause.memory and attempt.changes:
            # Only what failed: another start (`--fresh`, recovery off) says nothing of it.
            last_good.forget(self._start.memory_key, attempt.changes)

    def _holder(self) -> Holder:
        start = self._start
        return Holder(os.getpid(), start.name, time.time(), str(start.directory), start.address.url)


def exit_code(outcome: EngineOutcome) -> ExitCode:
    """The exit code that says what happened."""
    if outcome.ending is Ending.INTERRUPTED:
        return ExitCode.INTERRUPTED
    if outcome.ending is Ending.STOPPED:
        return ExitCode.CLEAN
    if outcome.ending is Ending.DIED and outcome.engine_exit_code == 0:
        return ExitCode.CLEAN
    return ExitCode.FAILED
