"""Do several things at once, and wait for none of them for long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from speclaunch.errors import SpeclaunchError
from speclaunch.facts.facts import UnknownFact

SECONDS = 5.0
"""A disk or a driver that does not answer by then does not answer."""


@dataclass(slots=True)
class _Task:
    thread: threading.Thread
    value: Any = None
    error: BaseException | None = None


class NoAnswer(UnknownFact):
    """Something was asked, and did not answer in time."""


def at_once(tasks: Mapping[str, Callable[[], Any]], seconds: float = SECONDS) -> dict[str, Any]:
    """Run each task in a thread of its own; the results by name.

    A task that raises, or has not ended after `seconds`, is an UnknownFact that says so. Its
    thread does not keep this process alive.
    """
    deadline = time.monotonic() + seconds
    running = {name: _start(run) for name, run in tasks.items()}
    found: dict[str, Any] = {}
    for name, task in running.items():
        task.thread.join(max(0.0, deadline - time.monotonic()))
        if task.thread.is_alive():
            found[name] = NoAnswer(name, f"no answer within {seconds:g} s")
        elif task.error is not None:
            found[name] = unknown(name, task.error)
        else:
            found[name] = task.value
    return found


def unknown(what: str, error: BaseException) -> UnknownFact:
    """Why something could not be told, in the words of the error."""
    if isinstance(error, SpeclaunchError):
        problem = error.problems[0]
        return UnknownFact(what, problem.message, problem.help)
    name = type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        where = f": {error.filename}" if error.filename else ""
        return UnknownFact(what, f"{error.strerror}{where}")
    return UnknownFact(what, f"{name}: {error}" if str(error) else name)


def _start(run: Callable[[], Any]) -> _Task:
    def work() -> None:
        try:
            task.value = run()
        except Exception as error:  # whatever it is, the others go on
            task.error = error

    task = _Task(threading.Thread(target=work, daemon=True))
    task.thread.start()
    return task
