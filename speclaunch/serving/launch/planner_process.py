"""Plan a launch in a separate process, so the remaining process is small and ready.

```
speclaunch ──fork──> planner: command line, recipe, rules, facts, memory budget
    │<───── PlannerResult ────┘ then it exits
    └─> guard ──> engine
```

The planner runs the usual command up to the start. If it refuses, it prints the reason and exits;
the waiting process exits with the same code. Meanwhile speclaunch loads what supervision needs and
starts the guard. Therefore rules, catalogues and their libraries never enter the process that lives
as long as the engine. If an attempt failed and other settings are needed, a new process reopens the
session, answers and exits.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from msgspec import Struct

from speclaunch.core import ExitCode, LaunchError, SpeclaunchError
from speclaunch.serving.launch.start import EngineCommand, LadderEnd, PlannedLaunch

if TYPE_CHECKING:
    from speclaunch.serving.launch.diagnosis.interface import Diagnosis
    from speclaunch.serving.launch.start import Attempt, Rung


class PlannerResult(Struct, frozen=True):
    """Result that a planner hands over to the waiting process."""

    start: PlannedLaunch
    session: bytes
    """Pickled Session, which plans the next attempt after a failure."""
    detach: bool
    verbose: bool
    as_json: bool
    title: str | None
    """Process title if the command line has secrets."""


_to_supervisor: BinaryIO | None = None
"""In the planner: pipe to the waiting process."""


def in_planner_process() -> bool:
    """True if this process plans for another process."""
    return _to_supervisor is not None


def hand_over(handed: PlannerResult) -> NoReturn:
    """In the planner: send the launch to the waiting process, and exit."""
    assert _to_supervisor is not None  # noqa: S101 - for the type checker
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(BrokenPipeError):  # it was killed
        pickle.dump(handed, _to_supervisor, pickle.HIGHEST_PROTOCOL)
        _to_supervisor.close()
    os._exit(ExitCode.CLEAN)  # unloading modules would only delay the other process


class ForkedPlanner:
    """The planner as seen by the waiting process."""

    def __init__(self, pid: int, pipe: BinaryIO) -> None:
        self._pid, self._pipe = pid, pipe

    def wait(self) -> PlannerResult | int:
        """Return the planner's result, or the exit code of its refusal.

        A signal to this process ends the planner first. Ctrl-C is raised as KeyboardInterrupt.
        """
        before = signal.signal(signal.SIGTERM, self._die)
        try:
            with self._pipe:
                data = self._pipe.read()
            code = self._ended()
        finally:
            signal.signal(signal.SIGTERM, before)
        if code < 0:  # killed, e.g. out of memory: we would have been killed too
            signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        if not data:
            return code
        handed: PlannerResult = pickle.loads(data)  # noqa: S301 - of our own child
        return handed

    def _ended(self) -> int:
        _, status = os.waitpid(self._pid, 0)
        return os.waitstatus_to_exitcode(status)

    def stop(self) -> None:
        """End the planner in any state."""
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGTERM)
            self._ended()

    def _die(self, number: int, _frame: object) -> None:
        if os.getpid() == 1:  # process 1 of a container ignores an unhandled SIGTERM
            raise KeyboardInterrupt
        self.stop()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def fork_planner() -> ForkedPlanner | None:
    """Fork. Return None in the planner, which continues to plan and to `hand_over`.

    Call it while the process has only one thread, before much is loaded.
    """
    global _to_supervisor  # noqa: PLW0603 - which side of the fork this is
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(writing)
        return ForkedPlanner(pid, os.fdopen(reading, "rb"))
    os.close(reading)
    # Ctrl-C reaches both processes: the waiting process reports it, once.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _to_supervisor = os.fdopen(writing, "wb")
    return None


class ReopenedPlanner:
    """Planner that opens a pickled Session for each call, in a separate process."""

    def __init__(self, session: bytes) -> None:
        self._session = session

    def command(self, changes: Mapping[str, Any]) -> EngineCommand:
        """Return the command for these changes. Raises LaunchError."""
        command: EngineCommand = _answered(lambda: self._opened().command(changes))
        return command

    def diagnose(
        self, lines: Iterable[str], *, version: str | None = None, exit_code: int | None = None
    ) -> Diagnosis:
        """Return the diagnosis of an engine's log."""

        def diagnosis() -> Diagnosis:
            from speclaunch.serving.launch.diagnosis.diagnose import diagnose  # noqa: PLC0415 - large

            return diagnose(lines, version=version, exit_code=exit_code)

        found: Diagnosis = _answered(diagnosis)
        return found

    def next_step(self, attempts: Sequence[Attempt]) -> Rung | LadderEnd:
        """Return the next rung of the ladder after these attempts."""
        try:
            step: Rung | LadderEnd = _answered(lambda: self._opened().next_step(attempts))
        except LaunchError as error:
            return LadderEnd(str(error))
        return step

    def write_lock(self, changes: Mapping[str, Any], accept_length: float | None) -> Path:
        """Write the lock of the deployment with these changes; return its path.

        `accept_length`: acceptance length of its first generation. Raises LaunchError.
        """
        path: Path = _answered(
            lambda: self._opened().write_lock(changes, accept_length),
            "the lock could not be written",
        )
        return path

    def _opened(self) -> Any:
        return pickle.loads(self._session)  # noqa: S301 - of our own planner


def _answered(
    question: Callable[[], Any], failed: str = "the next attempt could not be planned"
) -> Any:
    """Return the result of `question`, called in a separate process. Its memory is freed when it
    ends.

    Raises LaunchError. Its text begins with `failed` unless the process itself states the reason.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        _answer_and_end(question, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    os.waitpid(pid, 0)
    if not data:
        raise LaunchError(f"{failed}: its planner was killed")
    kind, answer = pickle.loads(data)  # noqa: S301 - of our own child
    if kind == "refused":
        raise LaunchError(*answer[:1], help=answer[1])
    if kind == "bug":
        raise LaunchError(f"{failed}: {answer}")
    return answer


def _answer_and_end(question: Callable[[], Any], pipe: int) -> NoReturn:
    """In the planner: write the answer to `pipe` and exit."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # the waiting process records them
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            answer: tuple[str, Any] = ("answer", question())
        except SpeclaunchError as error:
            answer = ("refused", (str(error), error.problems[0].help))
        except ImportError as error:
            answer = ("refused", (f"speclaunch was replaced while it ran: {error}", "launch again"))
        except Exception as error:
            answer = ("bug", f"{type(error).__name__}: {error}")
        with os.fdopen(pipe, "wb") as file:
            pickle.dump(answer, file, pickle.HIGHEST_PROTOCOL)
    finally:
        os._exit(0)
