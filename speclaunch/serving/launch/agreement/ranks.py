"""Launch of one rank, which runs one engine after another as the ranks agree."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from msgspec import convert, field
from msgspec.structs import replace

from speclaunch.core import LaunchError, json_value
from speclaunch.serving.launch.agreement.membership import (
    MARK,
    DirectoryStore,
    Membership,
    OpenStore,
    StoreError,
    process_space,
)
from speclaunch.serving.launch.agreement.protocol import (
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
    merged,
    others_serve,
)
from speclaunch.serving.launch.agreement.records import (
    Decision,
    DecisionKind,
    Failure,
    Joined,
    Name,
    RankGroup,
    RankStage,
    RankState,
    dump,
    epoch_file,
    failed_file,
)
from speclaunch.serving.launch.attempts import (
    Conclusion,
    EngineStarts,
    Ladder,
    failed,
    why_it_failed,
)
from speclaunch.serving.launch.diagnosis.interface import Cause, Diagnosis, Direction, Milestone
from speclaunch.serving.launch.engine_log import Phase
from speclaunch.serving.launch.guard import boot_seconds
from speclaunch.serving.launch.planner import Attempt, Rung
from speclaunch.serving.launch.supervisor import Ending, EngineOutcome, EngineSpec, LaunchObserver
from speclaunch.serving.launch.watchdog import LaunchThread

if TYPE_CHECKING:
    from pathlib import Path

CYCLES = 10
"""Number of keeper cycles per lease."""
_SHORTEST_SECONDS = 0.05
_LONGEST_SECONDS = 2.0


class AgreementKeeper(LaunchThread):
    """Thread that joins the agreement for one life of a rank and renews the lease."""

    def __init__(self, membership: Membership, lease_seconds: float) -> None:
        super().__init__("the agreement thread", self._keep)
        self._membership, self._lease = membership, lease_seconds
        self._pause = min(max(lease_seconds / CYCLES, _SHORTEST_SECONDS), _LONGEST_SECONDS)
        self._changed = threading.Condition()
        self._state = RankState()
        self._pending: dict[str, bytes] = {}
        self._stopping = False
        self._started_cycle = 0
        self.view: View | None = None
        """Directory content read in the last cycle; None until the rank has joined."""
        self._done_cycle = 0
        self.deadline = float("inf")
        """Time at which the lease expires, by `boot_seconds`."""
        self.error: StoreError | None = None

    @property
    def lapsed(self) -> bool:
        """True if the lease has expired: the other ranks consider this rank gone."""
        return boot_seconds() >= self.deadline

    def publish(self, state: RankState, files: Mapping[str, bytes]) -> int:
        """Set the state to publish and the files to create. Return the number of the first cycle
        that writes them."""
        with self._changed:
            self._state = state
            self._pending.update(files)
            self._changed.notify()
            return self._started_cycle + 1

    def has_done(self, cycle: int) -> bool:
        """True if this cycle's `publish` data is on disk and the directory has been read since."""
        return self.view is not None and self._done_cycle >= cycle

    def stop(self, seconds: float) -> None:
        """End the thread. Write pending data first if that takes at most `seconds`."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self.join(seconds)

    def _keep(self) -> None:
        """Run cycles until stopped, without a pause if there is new data."""
        published: RankState | None = None
        while not self._join() and not self._stopping:
            time.sleep(self._pause)
        while self.view is not None:
            with self._changed:
                new = published is None or self._pending or self._state != published
                if not new and not self._stopping:
                    self._changed.wait(self._pause)
                stopping = self._stopping and not self._pending
                self._started_cycle += 1
                state, files = self._state, dict(self._pending)
            done = self._cycle(state, files)
            published = state
            if stopping or (self._stopping and not done):
                return
            if not done:
                time.sleep(self._pause)

    def _join(self) -> bool:
        begun = boot_seconds()
        try:
            view = self._membership.join()
        except StoreError as error:
            self.error = error
            return False
        self.error, self.deadline, self.view = None, begun + self._lease, view
        return True

    def _cycle(self, state: RankState, files: Mapping[str, bytes]) -> bool:
        number = self._started_cycle
        beat = RankState(number, state.epoch, state.stage, state.engine)
        try:
            for file, data in files.items():
                if self._membership.create(file, data):
                    self._membership.created(file)
                with self._changed:
                    self._pending.pop(file, None)
            begun = boot_seconds()  # earlier than the start of the others' count
            self._membership.beat(beat)
            view = self._membership.read_view()
        except StoreError as error:
            self.error = error
            return False
        self.error = None
        if not self.lapsed:  # an expired lease is not renewed: others rely on its end
            self.deadline = begun + self._lease
        self.view, self._done_cycle = view, number  # in this order: `has_done` promises the view
        return True


def document(attempt: Attempt) -> dict[str, Any]:
    """Return an attempt as a JSON object for other ranks; empty if its cause is unknown."""
    found = attempt.diagnosis
    if found is None or found.cause is None:
        return {}
    cause = found.cause
    return {
        "changes": json_value(dict(attempt.changes)),
        "served": attempt.served,
        "tokens": attempt.tokens,
        "phase": found.phase.value,
        "line": found.line,
        "numbers": json_value(dict(found.numbers)),
        "settings": json_value(dict(found.settings)),
        "milestones": json_value(found.milestones),
        "cause": {
            "name": cause.name,
            "title": cause.title,
            "remedy": cause.remedy,
            "directions": {name: way.value for name, way in cause.directions.items()},
        },
    }


def attempt_of(number: int, document: Mapping[str, Any]) -> Attempt | None:
    """Return the attempt in a document; None if the document is invalid."""
    try:
        cause = document["cause"]
        diagnosis = Diagnosis(
            phase=Phase(document["phase"]),
            served=bool(document["served"]),
            cause=Cause(
                name=str(cause["name"]),
                title=str(cause["title"]),
                meaning="",
                remedy=str(cause["remedy"]),
                memory=True,
                directions={n: Direction(way) for n, way in cause["directions"].items()},
            ),
            line=None if document["line"] is None else str(document["line"]),
            numbers={str(n): float(v) for n, v in document["numbers"].items()},
            settings={str(n): float(v) for n, v in document["settings"].items()},
            milestones=convert(document["milestones"], tuple[Milestone, ...]),
        )
        tokens = document["tokens"]
        return Attempt(
            number,
            dict(document["changes"]),
            served=diagnosis.served,
            diagnosis=diagnosis,
            tokens=tokens if isinstance(tokens, int) else None,
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def next_decision(mine: Mine, action: AskLadder, ladder: Ladder | None) -> Decision:
    """Return the decision after a memory failure: take the ladder's next rung, or end all ranks."""
    newest, last = action.after, action.failures[-1]
    where = f"{last.name.member}: {last.why}"

    def no_more(why: str, advice: str | None = None) -> Decision:
        return ended(mine, newest, where, explanation=why, advice=advice or "")

    if ladder is None:
        return no_more("recovery is off: no other settings are tried")
    found = (
        attempt_of(number, failure.attempt) for number, failure in enumerate(action.failures, 1)
    )
    attempts = [attempt for attempt in found if attempt is not None]
    if not attempts:
        return no_more(f"the failure report of {last.name.member} is invalid")
    rung = ladder(attempts)
    if not isinstance(rung, Rung):
        return no_more(rung.why, rung.help)
    changes = {**newest.parts[mine.name.part].changes, **rung.changes}
    if any(changes == attempt.changes for attempt in attempts):
        return no_more(f"{rung.name} was tried before")
    return Decision(
        newest.epoch + 1,
        DecisionKind.MEMORY,
        str(mine.name),
        merged(newest, mine.name.part, changes),
        where,
        {"name": rung.name, "changes": rung.changes, "why": rung.why, "cost": rung.cost},
    )


def rung_of(decision: Decision) -> Rung | None:
    """Return the rung that led to a decision, for display; None if no rung did."""
    rung = decision.rung
    if rung is None:
        return None
    changes = rung.get("changes")
    return Rung(
        str(rung.get("name", "")),
        changes if isinstance(changes, dict) else {},
        f"{decision.why}; {rung.get('why', '')}",
        str(rung.get("cost", "")),
    )


_POLL_SECONDS = 0.05
_FLUSH_SECONDS = 5.0
"""Maximum seconds to wait until the last messages are on disk."""


class RankLaunching(EngineStarts, kw_only=True, dict=True):
    """Engine starts of one rank, with settings on which all ranks of `group` agree. `Launching` is
    the class for launches without a group."""

    group: RankGroup
    log: Path
    """Log to report if the launch ends before its first engine starts."""
    max_attempts: int = 8
    max_returns: int = 5
    smoke: bool = False
    open_store: OpenStore = DirectoryStore
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    _stage: RankStage = RankStage.WAITING
    _last_note: str = ""
    _missing_since: float | None = None
    _failed_since: float | None = None
    _damaged_since: float | None = None
    _reported: set[str] = field(default_factory=set)
    _last: tuple[EngineOutcome, EngineSpec, Diagnosis | None] | None = None
    _published: set[str] = field(default_factory=set)

    def run(self) -> Conclusion:
        """Run until the ranks end together, or this rank ends alone; return the result. Raises
        LaunchError if the directory is unusable."""
        group = self.group
        joined = Joined(
            Name(group.part, group.rank),
            group.key,
            group.begin,
            group.fresh,
            group.lease_seconds,
            socket.gethostname(),
            process_space(),
            os.getpid(),
            self.mark,
        )
        membership = Membership(
            group.directory / group.job, joined, group.parts, boot_seconds, self.open_store
        )
        self._mine = Mine(joined, group.parts)
        self._keeper = AgreementKeeper(membership, group.lease_seconds)
        self._keeper.start()
        try:
            self._wait_for_directory(membership)
            if self._keeper.view is None:
                return self._alone(Ending.INTERRUPTED, None)
            return self._agree()
        finally:
            self._mine = replace(self._mine, engine=-1)
            self.set_stage(RankStage.LEFT)
            self._keeper.stop(_FLUSH_SECONDS if not self._keeper.lapsed else 0.1)

    @property
    def until(self) -> float:
        """Time at which the engine must end unless the lease is renewed (`supervisor.Lease`)."""
        return self._keeper.deadline

    def recalled(self) -> str | None:
        """Return the reason to stop the engine now, or None (`supervisor.Lease`)."""
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

    def _wait_for_directory(self, membership: Membership) -> None:
        until = time.monotonic() + max(self.group.lease_seconds, 1.0)
        while self._keeper.view is None and not self.interrupts.received:
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
            f"{name.member} (life {name.life}) agrees on settings with the other ranks in "
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
        if isinstance(action, Adopt):
            self._mine = replace(self._mine, engine=-1)
            self._adopt(action.decision)
        elif isinstance(action, Decide):
            self._wait_for(self._decide(action.decision))
        elif isinstance(action, AskLadder):
            self._wait_for(self._decide(next_decision(self._mine, action, self.ladder)))
        elif isinstance(action, Wait):
            if action.why and action.why != self._last_note:
                self._last_note = action.why
                self.observer.note(action.why)
            self.interrupts.wait(_POLL_SECONDS)

    def _engine(self, decision: Decision) -> None:
        part = decision.parts[self._mine.name.part]
        number = len(self._attempts) + 1
        rung = rung_of(decision)
        try:
            order = self.order(number, part.changes)
        except LaunchError as error:
            why = f"{self._mine.name.member}: {error}"
            self._wait_for(self._decide(ended(self._mine, decision, why)))
            return
        env = {**order.env, MARK: self.mark}
        order = replace(order, env=env, lease=self)
        self.observer.attempt(number, part.changes, rung)
        self._last_note, self._failed_since = "", None
        self._mine = replace(self._mine, engine=part.since, settled=False)
        self.set_stage(RankStage.STARTING)
        watching = cast("LaunchObserver", _Watching(self.observer, self))
        outcome, attempt = self._attempt(order, part.changes, rung, watching)
        self._last = (outcome, order, attempt.diagnosis)
        since, self._mine = part.since, replace(self._mine, engine=-1)
        if outcome.ending is Ending.RECALLED:
            self.observer.failed(outcome.reason or "the ranks agreed on other settings")
            self.set_stage(RankStage.WAITING)
        elif outcome.ending is not Ending.INTERRUPTED and not self.interrupts.received:
            self._report_failure(attempt, outcome, since)

    def _is_explained(self, outcome: EngineOutcome) -> bool:
        return failed(outcome) and not self._keeper.lapsed

    def _report_failure(self, attempt: Attempt, outcome: EngineOutcome, since: int) -> None:
        """Report why the engine that was started in epoch `since` has ended."""
        cause = attempt.diagnosis.cause if attempt.diagnosis is not None else None
        unfit = outcome.verification is not None and not outcome.verification.ok
        memory = cause is not None and cause.memory and not unfit
        name, why = self._mine.name, why_it_failed(outcome, attempt.diagnosis)
        content = document(attempt) if memory else {}
        failure = Failure(
            name, since, memory, why, cause.name if cause is not None else "", content
        )
        self._failed_since = boot_seconds()
        self.observer.failed(why)
        self._wait_for(self.set_stage(RankStage.FAILED, {failed_file(since, name): dump(failure)}))

    def _decide(self, decision: Decision) -> int:
        """Make the decision unless its epoch already has one; return the number of the cycle that
        writes it."""
        return self._publish({epoch_file("epoch", decision.epoch): dump(decision)})

    def _adopt(self, decision: Decision) -> None:
        self._mine = replace(self._mine, epoch=decision.epoch)
        self._publish({})

    def announce_stop(self) -> None:
        """End all ranks if this worker must stop. Its engine ends after rank 0 has
        finished the open requests."""
        if self.interrupts.received and self.group.rank > 0:
            self._end_all()

    def _all_serve(self, view: View) -> None:
        newest = view.decisions[-1]
        if view.served < newest.epoch:
            self._publish({epoch_file("served", newest.epoch): b"{}\n"})
        if self.smoke:
            self._decide(ended(self._mine, newest, "every rank serves", ending="stopped"))

    def set_stage(self, stage: RankStage, files: Mapping[str, bytes] | None = None) -> int:
        """Publish the stage and the files; return the number of the cycle that writes them."""
        self._stage = stage
        return self._publish(files or {})

    def _publish(self, files: Mapping[str, bytes]) -> int:
        new = {name: data for name, data in files.items() if name not in self._published}
        self._published |= new.keys()
        mine = self._mine
        return self._keeper.publish(RankState(0, mine.epoch, self._stage, mine.engine), new)

    def _wait_for(self, cycle: int) -> None:
        """Wait until this cycle's data is on disk, or the rank is lost or interrupted."""
        while not self._keeper.has_done(cycle) and self._lost is None:
            if self.interrupts.wait(_POLL_SECONDS):
                return

    def _view(self) -> View:
        """Return the last view; set `overdue` or `stale` if a problem has lasted too long."""
        view, now = self._keeper.view, boot_seconds()
        assert view is not None  # noqa: S101 - `_wait_for_directory` has waited for it
        if not absent(self._mine, view):
            self._missing_since = None
        elif self._missing_since is None:
            self._missing_since = now
        waited = 0.0 if self._missing_since is None else now - self._missing_since
        if self._failed_since is not None and not self._mine.settled:
            settled = now - self._failed_since > self.group.lease_seconds
            self._mine = replace(self._mine, settled=settled)
        if not view.damaged:
            self._damaged_since = None
        elif self._damaged_since is None:
            self._damaged_since = now
        for text in view.unreadable:
            if text not in self._reported:
                self._reported.add(text)
                self.observer.warn(f"unreadable record: {text}")
        damaged = 0.0 if self._damaged_since is None else now - self._damaged_since
        return replace(
            view,
            overdue=waited > self.group.timeout_seconds,
            stale=damaged > self.group.lease_seconds,
        )

    @property
    def _lost(self) -> str | None:
        """Reason to stop serving; None while this rank holds its lease."""
        if self._keeper.failure is not None:
            return self._keeper.failure
        if not self._keeper.lapsed:
            return None
        error, seconds = self._keeper.error, self.group.lease_seconds
        why = str(error) if error else f"{self.group.directory} does not answer"
        return f"this rank stops serving, because its lease of {seconds:g} s has expired: {why}"

    def _interrupted(self) -> Conclusion:
        self._end_all()
        served = self._last is not None and self._last[0].served
        stopped = served and self.interrupts.received[0].name != "SIGINT"
        return self._alone(Ending.STOPPED if stopped else Ending.INTERRUPTED, None)

    def _end_all(self) -> None:
        """Decide to end all ranks after a stop request to this rank, because the other ranks cannot
        continue without it."""
        view = self._keeper.view
        newest = view.decisions[-1] if view and view.decisions else None
        if newest is None or not newest.end:
            why = f"{self._mine.name.member} was stopped ({self.interrupts.received[0].name})"
            self._decide(ended(self._mine, newest, why))

    def _conclude(self, decision: Decision) -> Conclusion:
        if decision.ending == Ending.STOPPED:
            code = self._last[0].engine_exit_code if self._last else None
            return self._concluded(EngineOutcome(Ending.STOPPED, None, code))
        explanation, advice = decision.explanation or None, decision.help or None
        if self._last is not None and decision.by == str(self._mine.name) and failed(self._last[0]):
            found = self._concluded(replace(self._last[0], reason=decision.why))
            return replace(found, diagnosis=self._last[2], explanation=explanation, help=advice)
        found = self._concluded(EngineOutcome(Ending.FAILED, decision.why))
        return replace(found, explanation=explanation, help=advice)

    def _alone(self, ending: Ending, reason: str | None) -> Conclusion:
        return self._concluded(EngineOutcome(ending, reason))

    def _concluded(self, outcome: EngineOutcome) -> Conclusion:
        log = self._last[1].log if self._last is not None else self.log
        return Conclusion(outcome, log, attempts=tuple(self._attempts))


class _Watching:
    """Observer wrapper that also notifies the rank when the engine serves or stops."""

    def __init__(self, observer: LaunchObserver, rank: RankLaunching) -> None:
        self._observer, self._rank = observer, rank

    def __getattr__(self, name: str) -> Any:
        return getattr(self._observer, name)

    def ready(self, verification: Any, seconds: float) -> None:
        if verification is None or verification.ok:
            self._rank.set_stage(RankStage.SERVING)
        self._observer.ready(verification, seconds)

    def stopping(self, reason: str) -> None:
        self._rank.announce_stop()
        self._observer.stopping(reason)
