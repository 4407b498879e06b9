"""Who is told what happens to an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from speclaunch.launch.client import Verification
from speclaunch.launch.log.phases import PhaseTracker
from speclaunch.launch.start import Rung


class Observer(Protocol):
    """Is told what happens; shows it to somebody."""

    def spawned(self, pid: int | None, log: Path) -> None:
        """The engine process was started."""

    def progress(self, tracker: PhaseTracker, seconds: float) -> None:
        """Called several times a second while the engine starts."""

    def output(self, lines: Sequence[str]) -> None:
        """The engine printed these lines."""

    def ready(self, verification: Verification | None, seconds: float) -> None:
        """The engine is ready and was checked."""

    def stopping(self, why: str) -> None:
        """The engine is being stopped."""

    def warn(self, text: str) -> None:
        """Something is not as it should be, and the engine runs on."""


class LaunchObserver(Observer, Protocol):
    """Is told, too, what happens between one engine and the next."""

    def attempt(self, number: int, changes: Mapping[str, Any], rung: Rung | None) -> None:
        """An engine is about to be started with these changes against the recipe."""

    def note(self, text: str) -> None:
        """Something that is good to know."""

    def failed(self, why: str) -> None:
        """An attempt came to its end, and there will be another."""

    def waiting(self, seconds: float) -> None:
        """The next engine is started in so many seconds."""


class Undisturbed:
    """An observer whose terminal may go away: that must not take the engine down."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def tell(self, call: Callable[[Observer], None]) -> None:
        """Call the observer, unless it can no longer show anything."""
        try:
            call(self._observer)
        except (OSError, ValueError):  # the terminal was closed, its pipe has no reader
            return
