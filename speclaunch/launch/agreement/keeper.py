"""Keeps a rank in the agreement: beats, reads and writes in a thread of its own.

A shared disk may take seconds for an operation, or never answer; whoever looks after the engine
must not wait for it. What the thread has seen is `seen`; until when this rank may serve, if nothing
more is heard, is `deadline`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from speclaunch.launch.agreement.membership import Membership
from speclaunch.launch.agreement.protocol import View
from speclaunch.launch.agreement.records import RankState
from speclaunch.launch.agreement.store import StoreError
from speclaunch.launch.guard import boot_seconds
from speclaunch.launch.watchdog import LaunchThread
from speclaunch.record import record

CYCLES = 10
"""A lease has room for so many."""
_SHORTEST_SECONDS = 0.05
_LONGEST_SECONDS = 2.0


@record
class Seen:
    """What a cycle saw."""

    cycle: int
    view: View


class Keeper(LaunchThread):
    """One life's thread: it joins, and stays."""

    def __init__(self, membership: Membership, lease_seconds: float) -> None:
        super().__init__("the keeper of the agreement", self._keep)
        self._membership, self._lease = membership, lease_seconds
        self._pause = min(max(lease_seconds / CYCLES, _SHORTEST_SECONDS), _LONGEST_SECONDS)
        self._changed = threading.Condition()
        self._state = RankState()
        self._wanted: dict[str, bytes] = {}
        self._stopping = False
        self._started_cycle = 0
        self.seen: Seen | None = None
        """None until it has joined."""
        self.deadline = float("inf")
        """Until when what was seen holds, by `boot_seconds`."""
        self.error: StoreError | None = None
        """Why the last cycle failed."""

    @property
    def lapsed(self) -> bool:
        """Whether the lease has run out: the others take this rank for gone."""
        return boot_seconds() >= self.deadline

    def tell(self, state: RankState, files: Mapping[str, bytes]) -> int:
        """Say this from now on, and make these files; the first cycle that has done it."""
        with self._changed:
            self._state = state
            self._wanted.update(files)
            self._changed.notify()
            return self._started_cycle + 1

    def has_done(self, cycle: int) -> bool:
        """Whether what `tell` named this cycle for is on the disk, and was looked at since."""
        return self.seen is not None and self.seen.cycle >= cycle

    def stop(self, seconds: float) -> None:
        """End; what was told is written before, if that takes no longer than this."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self.join(seconds)

    def _keep(self) -> None:
        """Cycle after cycle, at once where there is something new."""
        said: RankState | None = None
        while not self._join() and not self._stopping:
            time.sleep(self._pause)
        while self.seen is not None:
            with self._changed:
                new = said is None or self._wanted or self._state != said
                if not new and not self._stopping:
                    self._changed.wait(self._pause)  # a tenth of a lease
                stopping = self._stopping and not self._wanted
                self._started_cycle += 1
                state, files = self._state, dict(self._wanted)
            done = self._cycle(state, files)
            said = state
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
        self.error, self.deadline, self.seen = None, begun + self._lease, Seen(0, view)
        return True

    def _cycle(self, state: RankState, files: Mapping[str, bytes]) -> bool:
        number = self._started_cycle
        beat = RankState(number, state.epoch, state.stage, state.engine)
        try:
            for file, data in files.items():
                if self._membership.create(file, data):
                    self._membership.created(file)
                with self._changed:
                    self._wanted.pop(file, None)
            begun = boot_seconds()  # what the others count from comes later
            self._membership.beat(beat)
            view = self._membership.look()
        except StoreError as error:
            self.error = error
            return False
        self.error = None
        if not self.lapsed:  # what has run out is not taken up again: others have counted on it
            self.deadline = begun + self._lease
        self.seen = Seen(number, view)
        return True
