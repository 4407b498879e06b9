"""Tasks that run in parallel with a shared time limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from speclaunch.core import SpeclaunchError
from speclaunch.engine import UnknownFact

T = TypeVar("T")

SECONDS = 5.0
"""Time limit for a disk or a driver to answer."""


class NoAnswer(UnknownFact, frozen=True):
    """A task that did not answer in time."""


class PendingAnswer(Generic[T]):
    """Pending result of a task."""

    def __init__(self, what: str, run: Callable[[], T], seconds: float, deadline: float) -> None:
        self._what, self._seconds, self._deadline = what, seconds, deadline
        self._found: list[T] = []
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._work, args=(run,), daemon=True)
        self._thread.start()

    def get(self) -> T | UnknownFact:
        """Return the result; an UnknownFact if the task raised, or has not ended in time."""
        self._thread.join(max(0.0, self._deadline - time.monotonic()))
        if self._thread.is_alive():
            return NoAnswer(self._what, f"no answer within {self._seconds:g} s")
        return unknown(self._what, self._error) if self._error is not None else self._found[0]

    def _work(self, run: Callable[[], T]) -> None:
        try:
            self._found.append(run())
        except Exception as error:  # any error; the other tasks continue
            self._error = error


class BoundedTasks:
    """Runner of tasks in daemon threads, with a shared time limit of `seconds`."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds, self._deadline = seconds, time.monotonic() + seconds

    def start(self, what: str, run: Callable[[], T]) -> PendingAnswer[T]:
        """Start a task. `what` names its result if it fails."""
        return PendingAnswer(what, run, self._seconds, self._deadline)


def unknown(what: str, error: BaseException) -> UnknownFact:
    """Return the reason for a missing result, taken from the error."""
    if isinstance(error, SpeclaunchError):
        problem = error.problems[0]
        return UnknownFact(what, problem.message, problem.help)
    name = type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        where = f": {error.filename}" if error.filename else ""
        return UnknownFact(what, f"{error.strerror}{where}")
    return UnknownFact(what, f"{name}: {error}" if str(error) else name)
