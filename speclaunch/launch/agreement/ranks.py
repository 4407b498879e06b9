"""One rank's launch: engine after engine, as the ranks agree."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from speclaunch.errors import LaunchError
from speclaunch.launch.agreement import presence
from speclaunch.launch.agreement.group import RankGroup
from speclaunch.launch.agreement.keeper import Keeper
from speclaunch.launch.agreement.membership import Membership, OpenStore
from speclaunch.launch.agreement.protocol import (
    Action,
    Adopt,
    AskLadder,
    Decide,
    Ended,
    Lost,
    Mine,
    StartEngine,
    View,
    Wait,
    absent,
    act,
    ended,
    others_serve,
)
from speclaunch.launch.agreement.records import (
    Decision,
    Joined,
    Name,
    RankStage,
    RankState,
    dump,
    epoch_file,
    failed_file,
)
from speclaunch.launch.agreement.steps import failure_of, next_decision, rung_of
from speclaunch.launch.agreement.store import DirectoryStore
from speclaunch.launch.attempts import Conclusion, Diagnose, Ladder, failed
from speclaunch.launch.guard import boot_seconds
from speclaunch.launch.log.lines import read_log
from speclaunch.launch.observer import LaunchObserver
from speclaunch.launch.process import Interrupts
from speclaunch.launch.start import Attempt
from speclaunch.launch.supervisor import Ending, EngineOutcome, Order, supervise

if TYPE_CHECKING:
    from pathlib import Path

    from speclaunch.launch.diagnosis.interface import Diagnosis

_POLL_SECONDS = 0.05
_FLUSH_SECONDS = 5.0
"""How long the last words may take on their way to the disk."""


@dataclass
class RankLaunching:
    """What `Launching` is for a launch that is alone."""

    group: RankGroup
    order: Callable[[int, Mapping[str, Any]], Order]
    """What to run for an attempt of that number with these changes. Raises LaunchError."""
    diagnose: Diagnose
    version: str
    observer: LaunchObserver
    interrupts: Interrupts
    log: Path
    """Of a launch that ends before its first engine."""
    ladder: Ladder | None = None
    max_attempts: int = 8
    max_returns: int = 5
    smoke: bool = False
    run_engine: Callable[[Order, LaunchObserver, Interrupts], EngineOutcome] = supervise
    ended: Callable[[Attempt, EngineOutcome], None] = lambda *_: None
    open_store: OpenStore = DirectoryStore
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    _attempts: list[Attempt] = field(default_factory=list)
    _stage: RankStage = RankStage.WAITING
    _said: str = ""
    _missing_since: float | None = None
    _failed_since: float | None = None
    _damaged_since: float | None = None
    _reported: set[str] = field(default_factory=set)
    _last: tuple[EngineOutcome, Order, Diagnosis | None] | None = None
    _told: set[str] = field(default_factory=set)

    def run(self) -> Conclusion:
        """Run until the ranks end together, or this one alone. Raises LaunchError where the
        directory cannot be used."""
        group = self.group
        joined = Joined(
            Name(group.part, group.rank),
            group.key,
            group.begin,
            group.fresh,
            group.lease_seconds,
            socket.gethostname(),
            presence.process_space(),
            os.getpid(),
            self.mark,
        )
        membership = Membership(
            group.directory / group.job, joined, group.parts, boot_seconds, self.open_store
        )
        self._mine = Mine(joined, group.parts)
        self._keeper = Keeper(membership, group.lease_seconds)
        self._keeper.start()
        try:
            self._come(membership)
            if self._keeper.seen is None:
                return self._alone(Ending.INTERRUPTED, None)
            return self._agree()
        finally:
            self._mine = replace(self._mine, engine=-1)
            self._say(RankStage.LEFT)
            self._keeper.stop(_FLUSH_SECONDS if not self._keeper.lapsed else 0.1)

    @property
    def until(self) -> float:
        """When the engine must have ended if nothing more is heard (`supervisor.Lease`)."""
        return self._keeper.deadline

    def recalled(self) -> str | None:
        """Why the engine has to stop now (`supervisor.Lease`)."""
        if (lost := self._lost) is not None:
            return lost
        view = self._view()
        if self._stage is RankStage.SERVING and others_serve(view, self._mine):
            self._all_serve(view)
        action = act(self._mine, view)
        if isinstance(action, Adopt) and not action.stop:
            self._adopt(action.decision)
        elif isinstance(action, Adopt):
            return f"the ranks agreed on other settings ({action.decision.why})"
        elif isinstance(action, Decide):
            self._decide(action.decision)
        elif isinstance(action, AskLadder):
            return f"{action.failures[-1].name.member} ran out of memory"
        elif isinstance(action, Ended):
            return action.decision.why
        elif isinstance(action, Lost):
            return action.why
        return None

    def _come(self, membership: Membership) -> None:
        """Wait until the directory has answered."""
        until = time.monotonic() + max(self.group.lease_seconds, 1.0)
        while self._keeper.seen is None and not self.interrupts.received:
            error = self._keeper.error
            if self._keeper.failure is not None:
                raise LaunchError(self._keeper.failure)
            if time.monotonic() > until:
                where = self.group.directory
                raise LaunchError(
                    str(error) if error else f"{where} does not answer",
                    help=error.help if error else "check that it is mounted on every host",
                )
            self.interrupts.wait(_POLL_SECONDS)
        self._mine = Mine(
            membership.joined,
            self.group.parts,
            membership.joined_at,
            max_attempts=self.max_attempts,
            max_returns=self.max_returns,
        )
        name, generation = self._mine.name, membership.generation
        self.observer.note(
            f"{name.member}, life {name.life}, agrees with the other ranks in "
            f"{self.group.directory / self.group.job} (generation {generation})"
        )

    def _agree(self) -> Conclusion:
        while True:
            if self.interrupts.received:
                return self._interrupted()
            if (lost := self._lost) is not None:
                return self._alone(Ending.FAILED, lost)
            view = self._view()
            action = act(self._mine, view)
            if isinstance(action, StartEngine):
                self._engine(action.decision)
            elif isinstance(action, Ended):
                return self._conclude(action.decision)
            elif isinstance(action, Lost):
                return self._alone(Ending.FAILED, action.why)
            else:
                self._do(action)

    def _do(self, action: Action) -> None:
        """What needs no engine."""
        if isinstance(action, Adopt):
            self._mine = replace(self._mine, engine=-1)
            self._adopt(action.decision)
        elif isinstance(action, Decide):
            self._wait_for(self._decide(action.decision))
        elif isinstance(action, AskLadder):
            self._wait_for(self._decide(next_decision(self._mine, action, self.ladder)))
        elif isinstance(action, Wait):
            if action.why and action.why != self._said:
                self._said = action.why
                self.observer.note(action.why)
            self.interrupts.wait(_POLL_SECONDS)

    def _engine(self, decision: Decision) -> None:
        """Run one engine with the settings that were agreed on, to its end."""
        part = decision.parts[self._mine.name.part]
        number = len(self._attempts) + 1
        rung = rung_of(decision)
        try:
            order = self.order(number, part.changes)
        except LaunchError as error:
            why = f"{self._mine.name.member}: {error}"
            self._wait_for(self._decide(ended(self._mine, decision, why)))
            return
        env = {**order.env, presence.MARK: self.mark}
        order = replace(order, env=env, lease=self, smoke=self.smoke)
        self.observer.attempt(number, part.changes, rung)
        self._said, self._failed_since = "", None
        self._mine = replace(self._mine, engine=part.since, settled=False)
        self._say(RankStage.STARTING)
        outcome = self.run_engine(order, _Watching(self.observer, self._serves), self.interrupts)
        diagnosis = None
        if failed(outcome) and not self._keeper.lapsed:
            diagnosis = self.diagnose(
                read_log(order.log), version=self.version, exit_code=outcome.engine_exit_code
            )
        attempt = Attempt(
            number, part.changes, rung, outcome.steps, outcome.served, diagnosis, outcome.tokens
        )
        self._attempts.append(attempt)
        self._last = (outcome, order, diagnosis)
        self.ended(attempt, outcome)
        since, self._mine = part.since, replace(self._mine, engine=-1)
        if outcome.ending is Ending.RECALLED:
            self.observer.failed(outcome.reason or "the ranks agreed on other settings")
            self._say(RankStage.WAITING)
        elif outcome.ending is not Ending.INTERRUPTED and not self.interrupts.received:
            self._tell_failure(attempt, outcome, since)

    def _tell_failure(self, attempt: Attempt, outcome: EngineOutcome, since: int) -> None:
        said = failure_of(self._mine.name, since, attempt, outcome)
        self._failed_since = boot_seconds()
        self.observer.failed(said.why)
        self._wait_for(
            self._say(RankStage.FAILED, {failed_file(since, self._mine.name): dump(said)})
        )

    def _decide(self, decision: Decision) -> int:
        """Make it, unless another one was made; the cycle in which that is settled."""
        return self._tell({epoch_file("epoch", decision.epoch): dump(decision)})

    def _adopt(self, decision: Decision) -> None:
        """No engine of an older decision runs here: say so."""
        self._mine = replace(self._mine, epoch=decision.epoch)
        self._tell({})

    def _serves(self) -> None:
        self._say(RankStage.SERVING)

    def _all_serve(self, view: View) -> None:
        newest = view.decisions[-1]
        if view.served < newest.epoch:
            self._tell({epoch_file("served", newest.epoch): b"{}\n"})
        if self.smoke:
            self._decide(ended(self._mine, newest, "every rank serves", ending="stopped"))

    def _say(self, stage: RankStage, files: Mapping[str, bytes] | None = None) -> int:
        self._stage = stage
        return self._tell(files or {})

    def _tell(self, files: Mapping[str, bytes]) -> int:
        new = {name: data for name, data in files.items() if name not in self._told}
        self._told |= new.keys()
        mine = self._mine
        return self._keeper.tell(RankState(0, mine.epoch, self._stage, mine.engine), new)

    def _wait_for(self, cycle: int) -> None:
        """Until the disk has it, or there is no use in waiting."""
        while not self._keeper.has_done(cycle) and self._lost is None:
            if self.interrupts.wait(_POLL_SECONDS):
                return

    def _view(self) -> View:
        """What was seen last, with how long that has been so."""
        seen, now = self._keeper.seen, boot_seconds()
        assert seen is not None  # noqa: S101 - `_come` has waited for it
        if not absent(self._mine, seen.view):
            self._missing_since = None
        elif self._missing_since is None:
            self._missing_since = now
        waited = 0.0 if self._missing_since is None else now - self._missing_since
        if self._failed_since is not None and not self._mine.settled:
            settled = now - self._failed_since > self.group.lease_seconds
            self._mine = replace(self._mine, settled=settled)
        if not seen.view.damaged:
            self._damaged_since = None
        elif self._damaged_since is None:
            self._damaged_since = now
        for text in seen.view.unreadable:
            if text not in self._reported:
                self._reported.add(text)
                self.observer.warn(f"unreadable record: {text}")
        damaged = 0.0 if self._damaged_since is None else now - self._damaged_since
        return replace(
            seen.view,
            overdue=waited > self.group.timeout_seconds,
            stale=damaged > self.group.lease_seconds,
        )

    @property
    def _lost(self) -> str | None:
        """The reason to stop serving; None while this rank holds its lease."""
        if self._keeper.failure is not None:
            return self._keeper.failure
        if not self._keeper.lapsed:
            return None
        error, seconds = self._keeper.error, self.group.lease_seconds
        why = str(error) if error else f"{self.group.directory} does not answer"
        return f"this rank has lost the agreement, and does not serve: {why} (for {seconds:g} s)"

    def _interrupted(self) -> Conclusion:
        """We were told to stop: so the other ranks cannot go on."""
        decisions = self._keeper.seen.view.decisions if self._keeper.seen else ()
        name = self.interrupts.received[0].name
        if not decisions or not decisions[-1].end:
            newest = decisions[-1] if decisions else None
            why = f"{self._mine.name.member} was stopped ({name})"
            self._decide(ended(self._mine, newest, why))
        served = self._last is not None and self._last[0].served
        stopped = served and name != "SIGINT"
        return self._alone(Ending.STOPPED if stopped else Ending.INTERRUPTED, None)

    def _conclude(self, decision: Decision) -> Conclusion:
        """The ranks end together."""
        if decision.ending == Ending.STOPPED:
            code = self._last[0].engine_exit_code if self._last else None
            return self._concluded(EngineOutcome(Ending.STOPPED, None, code))
        explanation, advice = decision.explanation or None, decision.help or None
        if self._last is not None and decision.by == str(self._mine.name) and failed(self._last[0]):
            outcome = replace(self._last[0], reason=decision.why)
            return replace(
                self._concluded(outcome),
                diagnosis=self._last[2],
                explanation=explanation,
                help=advice,
            )
        found = self._concluded(EngineOutcome(Ending.FAILED, decision.why))
        return replace(found, explanation=explanation, help=advice)

    def _alone(self, ending: Ending, reason: str | None) -> Conclusion:
        return self._concluded(EngineOutcome(ending, reason))

    def _concluded(self, outcome: EngineOutcome) -> Conclusion:
        log = self._last[1].log if self._last is not None else self.log
        return Conclusion(outcome, log, attempts=tuple(self._attempts))


class _Watching:
    """Passes on what an observer is told, and hears when the engine serves."""

    def __init__(self, observer: LaunchObserver, serves: Callable[[], None]) -> None:
        self._observer, self._serves = observer, serves

    def __getattr__(self, name: str) -> Any:
        return getattr(self._observer, name)

    def ready(self, verification: Any, seconds: float) -> None:
        """Tell both."""
        if verification is None or verification.ok:
            self._serves()
        self._observer.ready(verification, seconds)
