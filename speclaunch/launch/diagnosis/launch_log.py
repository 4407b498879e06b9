"""One start of one engine, as far as its log has been read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from speclaunch.launch.diagnosis.interface import Cause, Milestone
from speclaunch.launch.diagnosis.release_wording import Wording
from speclaunch.launch.diagnosis.signature import Level, LogFailure
from speclaunch.launch.log.marks import PHASES, LogMark, Phase
from speclaunch.record import record

_MOST_SUSPECTS = 200
_LIFE_OF_OTHERS = 20
"""Lines of other ranks that show that a failed rank did not take the engine down: they may print
some while the parent still collects what is left of it."""
_LIFE_AFTER_DEATH = 50
"""Batches after the engine announced its end: then the announcement was somebody's text."""
_ORDER = tuple(Phase)


@record
class Suspect:
    """An error that may be the cause."""

    failure: LogFailure
    level: Level
    cause: Cause | None
    rule: str | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    final: bool = True
    """It ended a process, by what the engine says around it."""


@record(frozen=False)
class RankProgress:
    """How far one rank has come."""

    seen: set[LogMark] = field(default_factory=set)
    loads: int = 0
    """How many loads of weights began."""
    last: LogMark | None = None
    pooled_before_load: bool = False
    """The last load of weights began after a pool had been allocated: the order of releases up to
    0.5.13, where the draft is paid from what the fraction leaves."""
    phase: Phase = Phase.IMPORTS

    def take(self, mark: LogMark) -> None:
        """Take in a milestone of this rank."""
        if mark is LogMark.LOAD_BEGIN:
            self.loads += 1
            self.pooled_before_load = bool(self.seen & {LogMark.POOL, LogMark.POOL_END})
        if mark in (LogMark.LOAD_BEGIN, LogMark.LOAD_END):
            self.phase = Phase.WEIGHTS if self.loads < 2 else Phase.DRAFT_WEIGHTS
        elif mark in PHASES and not (self.phase is Phase.READY and mark is not LogMark.READY):
            self.phase = PHASES[mark]
        self.seen.add(mark)
        self.last = mark


@record(frozen=False)
class LaunchLog:
    """What is known of a start: its milestones, its errors, and whether it lives on."""

    wording: Wording = field(default_factory=Wording)
    courses: dict[str, RankProgress] = field(default_factory=dict)
    milestones: list[Milestone] = field(default_factory=list)
    suspects: list[Suspect] = field(default_factory=list)
    settings: dict[str, float] = field(default_factory=dict)
    cpu: bool = False
    served: bool = False
    stopped: bool = False
    dead: bool = False
    begun: bool = False
    """It has shown a milestone."""
    retracted: int = 0
    notes: list[str] = field(default_factory=list)
    lone: int = 0
    """Lines that looked like an exception without a traceback."""
    _others: int = 0

    def course(self, rank: str) -> RankProgress:
        """The course of a rank; of the only process where the line names none."""
        found = self.courses.get(rank)
        if found is None:
            found = self.courses[rank] = RankProgress()
        return found

    def best_course(self, rank: str) -> RankProgress:
        """The course to judge an error of `rank` by: its own, else the one furthest ahead."""
        own = self.courses.get(rank)
        if own is not None and own.last is not None:
            return own
        known = [one for one in self.courses.values() if one.last is not None]
        if not known:
            return RankProgress()
        return max(known, key=lambda one: _ORDER.index(one.phase))

    @property
    def phase(self) -> Phase:
        """How far the furthest rank has come."""
        return max(
            (course.phase for course in self.courses.values()),
            key=_ORDER.index,
            default=Phase.IMPORTS,
        )

    def take(self, mark: LogMark, rank: str) -> None:
        """Take in a milestone, and drop the errors that it shows to have been survived."""
        self.begun = True
        if mark is LogMark.STOP:
            self.stopped = True
            return
        if mark is LogMark.DEATH:
            self.dead = True
            return
        if mark is not LogMark.SERVING:  # of the parent: it knows nothing of the scheduler
            self._live(rank)
        if mark is LogMark.BATCH:
            course = self.course(rank)
            if course.last is None:  # the beginning of the log is missing
                course.phase = Phase.READY
                self.served = True
            course.last = course.last or mark
            return
        if mark is LogMark.READY:
            self.served = True
        self.course(rank).take(mark)

    def suspect(self, one: Suspect) -> None:
        """Remember an error; the first ones tell most."""
        if self.full:
            return
        before = self.suspects[-1] if self.suspects else None
        if (
            before is not None
            and before.level is Level.UNKNOWN
            and before.failure.chain
            and before.failure.chain == one.failure.chain
        ):  # of exceptions that nobody knows, the last of a traceback is what it came to
            self.suspects.pop()
        self.suspects.append(one)

    @property
    def full(self) -> bool:
        """There are errors enough; more of them would tell nothing."""
        return len(self.suspects) >= _MOST_SUSPECTS

    def _live(self, rank: str) -> None:
        if not self.suspects:
            return
        self._others += 1
        if self.dead:
            if self._others >= _LIFE_AFTER_DEATH:
                self.suspects.clear()
                self.dead, self._others = False, 0
            return
        if self._others >= _LIFE_OF_OTHERS:
            self.suspects.clear()
            self._others = 0
            return
        self.suspects = [one for one in self.suspects if not _survived(one, rank)]
        if not self.suspects:
            self._others = 0

    def verdict(self) -> Suspect | None:
        """The error that ended it, or None where none did."""
        asked = self.suspects
        if self.stopped:  # what breaks while it is being stopped is no failure
            asked = [one for one in asked if one.level is Level.CAUSE]
        found = sorted(asked, key=lambda one: (-one.level, not one.final, one.failure.number))
        return found[0] if found else None


def _survived(one: Suspect, alive: str) -> bool:
    """Whether a sign of life of this rank shows that an error was survived."""
    return one.failure.rank == alive or (not one.failure.rank and not one.final)
