"""Run start attempts: start, diagnose a failure or crash, take a recovery step, start again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import ExitCode, LaunchError
from speclaunch.serving.launch.engine_log import read_log
from speclaunch.serving.launch.planner import Attempt, LadderEnd, Rung
from speclaunch.serving.launch.process import Interrupts
from speclaunch.serving.launch.supervisor import (
    Ending,
    EngineOutcome,
    EngineSpec,
    LaunchObserver,
    supervise,
)

if TYPE_CHECKING:
    from speclaunch.deployments import Restart
    from speclaunch.serving.launch.diagnosis.interface import Diagnosis


Diagnose = Callable[..., "Diagnosis"]
"""Function that returns the diagnosis of an engine's log (`Planner.diagnose`)."""
Ladder = Callable[[Sequence[Attempt]], Rung | LadderEnd]
"""Function that returns the next rung, or the ladder's end, for the attempts so far, the last of
which ran out of memory."""


class RestartPolicy(Struct):
    """Restart policy for an engine that has served: capped back-off, limited restarts per time
    window."""

    settings: Restart
    enabled: bool = True
    _endings: list[float] = []

    def ended(self, now: float) -> float | str:
        """Return the seconds until the restart of an engine that had served, or the reason not to
        restart it. `now`: monotonic seconds (`time.monotonic`)."""
        if not self.enabled:
            return "launch.restart.policy prevents a restart"
        window, limit = self.settings.window_seconds, self.settings.limit
        self._endings = [ending for ending in self._endings if now - ending <= window] + [now]
        count = len(self._endings)
        if count > limit:
            return (
                f"the engine has ended {count} times within {window:g} s, and"
                f" launch.restart.limit is {limit}"
            )
        doubled: float = self.settings.first_delay_seconds * 2 ** min(count - 1, 32)
        return min(doubled, self.settings.longest_delay_seconds)


class Conclusion(Struct, frozen=True):
    """Result of a launch: outcome and diagnosis of the last engine, why no attempt followed, and
    all attempts."""

    outcome: EngineOutcome
    log: Path
    diagnosis: Diagnosis | None = None
    explanation: str | None = None
    attempts: tuple[Attempt, ...] = ()
    help: str | None = None


class EngineStarts(Struct, kw_only=True):
    """Engine starts of a launch, one at a time."""

    order: Callable[[int, Mapping[str, Any]], EngineSpec]
    """Function that returns the engine spec for an attempt number and its changes. Raises
    LaunchError."""
    diagnose: Diagnose
    version: str
    observer: LaunchObserver
    interrupts: Interrupts
    ladder: Ladder | None = None
    max_attempts: int = 6
    """Maximum number of engine starts until an engine serves, which resets the count."""
    run_engine: Callable[[EngineSpec, LaunchObserver, Interrupts], EngineOutcome] = supervise
    ended: Callable[[Attempt, EngineOutcome], None] = lambda *_: None
    _attempts: list[Attempt] = []

    def _attempt(
        self,
        order: EngineSpec,
        changes: Mapping[str, Any],
        rung: Rung | None,
        observer: LaunchObserver,
    ) -> tuple[EngineOutcome, Attempt]:
        """Run one engine to its end; return its outcome, and the attempt with a diagnosis if it
        failed."""
        outcome = self.run_engine(order, observer, self.interrupts)
        diagnosis = None
        if self._is_explained(outcome):
            diagnosis = self.diagnose(
                read_log(order.log), version=self.version, exit_code=outcome.engine_exit_code
            )
        number = len(self._attempts) + 1
        attempt = Attempt(
            number, changes, rung, outcome.steps, outcome.served, diagnosis, outcome.tokens
        )
        self._attempts.append(attempt)
        self.ended(attempt, outcome)
        return outcome, attempt

    def _is_explained(self, outcome: EngineOutcome) -> bool:
        return failed(outcome)


class Launching(EngineStarts, kw_only=True):
    """Engine starts of a launch whose settings need no agreement with other ranks."""

    policy: RestartPolicy
    clock: Callable[[], float] = time.monotonic
    _starts: int = 0
    _proven: list[Mapping[str, Any]] = []
    """Changes with which an engine served in this launch."""

    def run(self, changes: Mapping[str, Any], rung: Rung | None = None) -> Conclusion:
        """Run attempts, starting with `changes`, until no attempt follows; return the result."""
        while True:
            number = len(self._attempts) + 1
            order = self.order(number, changes)
            self.observer.attempt(number, changes, rung)
            self._starts += 1
            outcome, attempt = self._attempt(order, changes, rung, self.observer)
            if attempt.served:
                self._starts = 0
                self._proven.append(changes)
            ended = Conclusion(outcome, order.log, attempt.diagnosis, None, tuple(self._attempts))
            step = self._next(attempt, ended)
            if isinstance(step, Conclusion):
                return step
            changes, rung, pause = step
            self.observer.failed(why_it_failed(outcome, attempt.diagnosis))
            if pause:
                self.observer.waiting(pause)
            if self.interrupts.wait(pause):
                stopped = EngineOutcome(Ending.INTERRUPTED, None, outcome.engine_exit_code)
                return replace(ended, outcome=stopped, diagnosis=None)

    def _next(
        self, attempt: Attempt, ended: Conclusion
    ) -> Conclusion | tuple[Mapping[str, Any], Rung | None, float]:
        """Return the next attempt (changes, rung, pause in seconds), or the final result."""
        outcome = ended.outcome
        unfit = outcome.verification is not None and not outcome.verification.ok
        if not failed(outcome) or unfit:  # a restart cannot make an engine do what was requested
            return ended
        lasted = attempt.served or any(attempt.changes == changes for changes in self._proven)
        again = self.policy.ended(self.clock()) if lasted else None
        if isinstance(again, str):
            return replace(ended, explanation=again)
        if _of_memory(attempt) and self.ladder is not None:
            return self._step(self.ladder, attempt, ended, again or 0.0)
        if again is not None:
            return attempt.changes, attempt.rung, again
        if _of_memory(attempt):
            return replace(ended, explanation="recovery is off: no other settings are tried")
        return ended

    def _step(
        self, ladder: Ladder, attempt: Attempt, ended: Conclusion, pause: float
    ) -> Conclusion | tuple[Mapping[str, Any], Rung | None, float]:
        if self._starts >= self.max_attempts:
            why = f"{self._starts} attempts failed, the limit of --max-attempts"
            return replace(ended, explanation=why)
        rung = ladder(
            [earlier for earlier in self._attempts if _of_memory(earlier) or earlier.served]
        )
        if not isinstance(rung, Rung):
            return replace(ended, explanation=rung.why, help=rung.help)
        changes = {**attempt.changes, **rung.changes}
        if any(changes == earlier.changes for earlier in self._attempts if not earlier.served):
            return replace(ended, explanation=f"{rung.name} was tried before")
        try:
            self.order(attempt.number + 1, changes)
        except LaunchError as error:
            return replace(ended, explanation=str(error))
        return changes, rung, pause


def failed(outcome: EngineOutcome) -> bool:
    """True if the engine ended with an error."""
    if outcome.ending is Ending.DIED:
        return outcome.engine_exit_code != 0
    return outcome.ending in (Ending.FAILED, Ending.HUNG)


def _of_memory(attempt: Attempt) -> bool:
    diagnosis = attempt.diagnosis
    return diagnosis is not None and diagnosis.cause is not None and diagnosis.cause.memory


def why_it_failed(outcome: EngineOutcome, diagnosis: Diagnosis | None) -> str:
    """Return, in one line, why an attempt ended."""
    if diagnosis is not None and diagnosis.cause is not None:
        return f"{diagnosis.cause.title}: {diagnosis.line or outcome.reason or ''}".rstrip(": ")
    return outcome.reason or "the engine ended"


def exit_code(outcome: EngineOutcome) -> ExitCode:
    """Return the exit code that speclaunch reports for an outcome."""
    if outcome.ending is Ending.INTERRUPTED:
        return ExitCode.INTERRUPTED
    finished = outcome.ending is Ending.DIED and not failed(outcome)
    clean = finished or outcome.ending is Ending.STOPPED
    return ExitCode.CLEAN if clean else ExitCode.FAILED
