"""The threads of a launch: one that fails ends the launch with the reason."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from pathlib import Path

_SHOWN = 300


class LaunchThread:
    """A thread that never prints a traceback. The supervisor reads `failure`."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        """`name`: the thread's part in the launch, for its failure: `the prober`."""
        self.failure: str | None = None
        """The reason for an early end; None while the thread runs, and after a normal end."""
        self._name, self._work = name, work
        self._thread = threading.Thread(target=self._run, name=f"speclaunch {name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait for its end, at most this long."""
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            text = " ".join(f"{type(error).__name__}: {error}".split())[:_SHOWN]
            where = f"{Path(place.filename).name}:{place.lineno}"
            self.failure = f"{self._name} failed, a bug in speclaunch: {text} ({where})"
