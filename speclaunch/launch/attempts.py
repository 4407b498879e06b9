"""Attempt after attempt: start, diagnose what failed, step, start again; also after a crash."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from speclaunch.errors import LaunchError
from speclaunch.launch.log.lines import read_log
from speclaunch.launch.observer import LaunchObserver
from speclaunch.launch.process import Interrupts
from speclaunch.launch.restart import Again, GiveUp, RestartPolicy
from speclaunch.launch.start import Attempt, Rung
from speclaunch.launch.supervisor import Ending, EngineOutcome, Order, supervise
from speclaunch.record import record

if TYPE_CHECKING:
    from speclaunch.launch.diagnosis.interface import Diagnosis


class Diagnose(Protocol):
    """From an engine's log to what it died of."""

    def __call__(
        self, lines: Iterable[str], *, version: str | None = None, exit_code: int | None = None
    ) -> Diagnosis:
        """Explain a log."""


class Explained(Protocol):
    """A ladder that has no further rung says why."""

    @property
    def why(self) -> str:
        """In sentences for the user."""

    @property
    def help(self) -> str | None:
        """What else would help."""


Ladder = Callable[[Sequence[Attempt]], Rung | Explained]
"""The next rung after these attempts, of which the last failed for lack of memory."""


@record
class Conclusion:
    """How a launch ended: the last engine's outcome, what it died of, why there is no further
    attempt, and all attempts."""

    outcome: EngineOutcome
    log: Path
    diagnosis: Diagnosis | None = None
    explanation: str | None = None
    attempts: tuple[Attempt, ...] = ()
    help: str | None = None
    """What would help, where the ladder knows it."""


@dataclass
class Launching:
    """One launch: as many engines as it takes, one at a time."""

    order: Callable[[int, Mapping[str, Any]], Order]
    """What to run for an attempt of that number with these changes. Raises LaunchError."""
    diagnose: Diagnose
    version: str
    observer: LaunchObserver
    interrupts: Interrupts
    policy: RestartPolicy
    ladder: Ladder | None = None
    """None: recovery is off."""
    max_attempts: int = 6
    """Engine starts before one serves. After one has served they count anew."""
    run_engine: Callable[[Order, LaunchObserver, Interrupts], EngineOutcome] = supervise
    ended: Callable[[Attempt, EngineOutcome], None] = lambda *_: None
    """Is told of every attempt that ended, for the record."""
    clock: Callable[[], float] = time.monotonic
    _attempts: list[Attempt] = field(default_factory=list)
    _starts: int = 0
    _proven: list[Mapping[str, Any]] = field(default_factory=list)
    """Changes with which it has served in this launch."""

    def run(self, changes: Mapping[str, Any], rung: Rung | None = None) -> Conclusion:
        """Run until there is nothing more to be done; begins with `changes`."""
        while True:
            number = len(self._attempts) + 1
            order = self.order(number, changes)
            self.observer.attempt(number, changes, rung)
            self._starts += 1
            outcome = self.run_engine(order, self.observer, self.interrupts)
            attempt = self._judged(number, changes, rung, outcome, order)
            self._attempts.append(attempt)
            self.ended(attempt, outcome)
            if attempt.served:
                self._starts = 0
                self._proven.append(changes)
            step = self._next(attempt, outcome, order)
            if isinstance(step, Conclusion):
                return step
            changes, rung, pause = step
            self.observer.failed(why_it_failed(outcome, attempt.diagnosis))
            if pause:
                self.observer.waiting(pause)
            if self.interrupts.wait(pause):
                ended = EngineOutcome(Ending.INTERRUPTED, None, outcome.engine_exit_code)
                return self._conclude(ended, order, None)

    def _judged(
        self,
        number: int,
        changes: Mapping[str, Any],
        rung: Rung | None,
        outcome: EngineOutcome,
        order: Order,
    ) -> Attempt:
        diagnosis = None
        if failed(outcome):
            diagnosis = self.diagnose(
                read_log(order.log), version=self.version, exit_code=outcome.engine_exit_code
            )
        return Attempt(
            number, changes, rung, outcome.steps, outcome.served, diagnosis, outcome.tokens
        )

    def _next(
        self, attempt: Attempt, outcome: EngineOutcome, order: Order
    ) -> Conclusion | tuple[Mapping[str, Any], Rung | None, float]:
        """The changes, the rung and the pause before the next attempt, or the end."""
        if not failed(outcome) or _unfit(outcome):
            return self._conclude(outcome, order, attempt.diagnosis)
        lasted = attempt.served or any(attempt.changes == one for one in self._proven)
        again: Again | GiveUp | None = self.policy.ended(self.clock()) if lasted else None
        if isinstance(again, GiveUp):
            return self._conclude(outcome, order, attempt.diagnosis, again.why)
        pause = again.seconds if again is not None else 0.0
        cause = attempt.diagnosis.cause if attempt.diagnosis is not None else None
        if cause is not None and cause.memory and self.ladder is not None:
            return self._step(attempt, outcome, order, pause)
        if again is not None:
            return attempt.changes, attempt.rung, pause
        why = None
        if cause is not None and cause.memory:
            why = "recovery is off: no other settings are tried"
        return self._conclude(outcome, order, attempt.diagnosis, why)

    def _step(
        self, attempt: Attempt, outcome: EngineOutcome, order: Order, pause: float
    ) -> Conclusion | tuple[Mapping[str, Any], Rung | None, float]:
        assert self.ladder is not None  # noqa: S101 - for the type checker
        if self._starts >= self.max_attempts:
            why = f"{self._starts} attempts were made, the limit of --max-attempts"
            return self._conclude(outcome, order, attempt.diagnosis, why)
        fit = [one for one in self._attempts if _of_memory(one) or one.served]
        rung = self.ladder(fit)
        if not isinstance(rung, Rung):
            ended = self._conclude(outcome, order, attempt.diagnosis, rung.why)
            return replace(ended, help=rung.help)
        changes = {**attempt.changes, **rung.changes}
        if any(changes == one.changes for one in self._attempts if not one.served):
            why = f"{rung.name} was tried before"
            return self._conclude(outcome, order, attempt.diagnosis, why)
        try:
            self.order(attempt.number + 1, changes)
        except LaunchError as error:
            return self._conclude(outcome, order, attempt.diagnosis, str(error))
        return changes, rung, pause

    def _conclude(
        self,
        outcome: EngineOutcome,
        order: Order,
        diagnosis: Diagnosis | None,
        explanation: str | None = None,
    ) -> Conclusion:
        return Conclusion(outcome, order.log, diagnosis, explanation, tuple(self._attempts))


def failed(outcome: EngineOutcome) -> bool:
    """Whether it ended otherwise than it should."""
    if outcome.ending is Ending.DIED:
        return outcome.engine_exit_code != 0
    return outcome.ending in (Ending.FAILED, Ending.HUNG)


def _unfit(outcome: EngineOutcome) -> bool:
    """Whether the engine ran well and does not do what was asked: no restart mends that."""
    return outcome.verification is not None and not outcome.verification.ok


def _of_memory(attempt: Attempt) -> bool:
    diagnosis = attempt.diagnosis
    return diagnosis is not None and diagnosis.cause is not None and diagnosis.cause.memory


def why_it_failed(outcome: EngineOutcome, diagnosis: Diagnosis | None) -> str:
    """Why an attempt ended, in a line."""
    if diagnosis is not None and diagnosis.cause is not None:
        return f"{diagnosis.cause.title}: {diagnosis.line or outcome.reason or ''}".rstrip(": ")
    return outcome.reason or "the engine ended"
