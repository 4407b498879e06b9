"""Tells everybody who must know what happens: the journal, the service manager, the user."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from speclaunch.launch.client import Verification
from speclaunch.launch.journal import Journal
from speclaunch.launch.log.marks import Phase
from speclaunch.launch.log.phases import PhaseTracker
from speclaunch.launch.notify import Notifier
from speclaunch.launch.observer import LaunchObserver
from speclaunch.launch.start import Rung

_EXTEND_SECONDS = 10.0
"""A starting engine asks the service manager for more time as often as this."""


class RecordingObserver:
    """An observer that writes down what it is told, and passes it on.

    The journal comes first: a terminal that is gone must not cost the record.
    """

    def __init__(
        self,
        shown: LaunchObserver,
        journal: Journal,
        notifier: Notifier,
        on_served: Callable[[Mapping[str, Any]], None],
        *,
        url: str,
    ) -> None:
        self._shown = shown
        self._journal = journal
        self._notifier = notifier
        self._on_served = on_served
        self._url = url
        self._changes: Mapping[str, Any] = {}
        self._phase: Phase | None = None
        self._told_manager = float("-inf")
        self._told_error: str | None = None
        self.command: Sequence[str] = ()
        """What the next attempt runs, secrets left out; set by who composes it."""
        self.environment: Mapping[str, str | None] = {}
        self.log = Path()

    def attempt(self, number: int, changes: Mapping[str, Any], rung: Rung | None) -> None:
        """An engine is about to be started."""
        self._changes, self._phase = changes, None
        self._journal.attempt(
            number,
            changes,
            rung,
            command=self.command,
            environment=self.environment,
            log=self.log,
        )
        self._check_journal()
        with contextlib.suppress(OSError, ValueError):
            self._shown.attempt(number, changes, rung)

    def spawned(self, pid: int | None, log: Path) -> None:
        """The engine's process was started."""
        self._journal.spawned(pid)
        self._shown.spawned(pid, log)

    def progress(self, tracker: PhaseTracker, seconds: float) -> None:
        """Note milestones, and keep the service manager content."""
        self._journal.progress(tracker)
        self._tell_manager(tracker)
        self._shown.progress(tracker, seconds)

    def output(self, lines: Sequence[str]) -> None:
        """Pass it on; the log has it."""
        self._shown.output(lines)

    def ready(self, verification: Verification | None, seconds: float) -> None:
        """The engine is ready; it serves where the check of it was good."""
        self._journal.ready(verification, seconds)
        if verification is None or verification.ok:
            self._on_served(self._changes)
            self._notifier.tell(READY=1, STATUS=f"serving at {self._url}")
        self._check_journal()
        self._shown.ready(verification, seconds)

    def stopping(self, why: str) -> None:
        """The engine is being stopped: for good where no reason is given."""
        self._journal.stopping()
        if not why:
            self._notifier.tell(STOPPING=1, STATUS="stopping the engine")
        self._shown.stopping(why)

    def failed(self, why: str) -> None:
        """An attempt has ended, and there will be another."""
        self._notifier.tell(STATUS=f"starting again: {why}"[:500].replace("\n", " "))
        with contextlib.suppress(OSError, ValueError):
            self._shown.failed(why)

    def waiting(self, seconds: float) -> None:
        """There is a pause before the next engine."""
        self._journal.waiting()
        with contextlib.suppress(OSError, ValueError):
            self._shown.waiting(seconds)

    def note(self, text: str) -> None:
        """Pass it on."""
        with contextlib.suppress(OSError, ValueError):
            self._shown.note(text)

    def warn(self, text: str) -> None:
        """Pass it on."""
        self._shown.warn(text)

    def _check_journal(self) -> None:
        error = self._journal.error
        if error is not None and error != self._told_error:
            with contextlib.suppress(OSError, ValueError):
                self._shown.warn(f"cannot write the journal: {error}")
        self._told_error = error

    def _tell_manager(self, tracker: PhaseTracker) -> None:
        now = time.monotonic()
        phase = tracker.current.phase
        if phase is not self._phase and phase is not Phase.READY:
            self._phase = phase
            self._notifier.tell(STATUS=f"starting: {phase.value}")
        alive = self._notifier.watchdog_seconds
        pause = min(_EXTEND_SECONDS, alive / 2) if alive else _EXTEND_SECONDS
        if now - self._told_manager >= pause:
            self._told_manager = now
            extend = {} if phase is Phase.READY else {"EXTEND_TIMEOUT_USEC": 60_000_000}
            self._notifier.tell(WATCHDOG=1, **extend)
