"""A launch is planned in a process of its own, so that the one that stays is small and ready.

```
speclaunch ──fork──> planner: command line, recipe, rules, facts, memory budget
     │<───── Handed ────┘ and its end
     └─> guard ──> engine
```
The planner is the command as it always was, up to the start: what it refuses, it says and ends
with its exit code, which is ours then. Meanwhile speclaunch loads what looking after an engine
takes, and starts the guard. Rules, catalogues and the libraries behind them so never get into the
process that stays as long as the engine. Where an attempt failed and other settings are needed, the
session that was handed over is opened once more, again in a process that ends with its answer.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from msgspec import Struct

from speclaunch.core import ExitCode, LaunchError
from speclaunch.serving.launch.start import EngineCommand, LadderEnd, PlannedLaunch

if TYPE_CHECKING:
    from speclaunch.serving.launch.diagnosis.interface import Diagnosis
    from speclaunch.serving.launch.start import Attempt, Rung


class Handed(Struct, frozen=True):
    """What a planner hands over."""

    start: PlannedLaunch
    session: bytes
    """The pickled Session: the Planner for what comes after a failed attempt."""
    detach: bool
    verbose: bool
    as_json: bool
    title: str | None
    """How the process calls itself, where its command line has secrets."""


_to_supervisor: BinaryIO | None = None
"""In the planner: the pipe to who waits for it."""


def is_apart() -> bool:
    """Whether this process plans for another one."""
    return _to_supervisor is not None


def hand_over(handed: Handed) -> NoReturn:
    """In the planner: give the launch to who waits for it, and end."""
    assert _to_supervisor is not None  # noqa: S101 - for the type checker
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(BrokenPipeError):  # it was killed
        pickle.dump(handed, _to_supervisor, pickle.HIGHEST_PROTOCOL)
        _to_supervisor.close()
    os._exit(ExitCode.CLEAN)  # taking down what was loaded would only keep the other waiting


class PlannedApart:
    """A planner as the process sees it that waits for it."""

    def __init__(self, pid: int, pipe: BinaryIO) -> None:
        self._pid, self._pipe = pid, pipe

    def wait(self) -> Handed | int:
        """What it hands over, or the exit code with which it refused.

        A signal to us ends it first; Ctrl-C is raised as KeyboardInterrupt.
        """
        before = signal.signal(signal.SIGTERM, self._die)
        try:
            with self._pipe:
                said = self._pipe.read()
            code = self._ended()
        finally:
            signal.signal(signal.SIGTERM, before)
        if code < 0:  # killed, for want of memory say: so we would have been
            signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        if not said:
            return code
        handed: Handed = pickle.loads(said)  # noqa: S301 - of our own child
        return handed

    def _ended(self) -> int:
        _, status = os.waitpid(self._pid, 0)
        return os.waitstatus_to_exitcode(status)

    def stop(self) -> None:
        """End it, whatever it does."""
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGTERM)
            self._ended()

    def _die(self, number: int, _frame: object) -> None:
        if os.getpid() == 1:  # to process 1 of a container an unhandled SIGTERM means nothing
            raise KeyboardInterrupt
        self.stop()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def plan_apart() -> PlannedApart | None:
    """Fork; None in the planner, which goes on to plan and to `hand_over`.

    To be called while the process has one thread, and before much was loaded.
    """
    global _to_supervisor  # noqa: PLW0603 - which side of the fork this is
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(writing)
        return PlannedApart(pid, os.fdopen(reading, "rb"))
    os.close(reading)
    # Ctrl-C reaches us both: the one that waits tells us, once.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _to_supervisor = os.fdopen(writing, "wb")
    return None


class ReopenedPlanner:
    """A planner that opens a pickled Session for each question, in a process of its own."""

    def __init__(self, session: bytes) -> None:
        self._session = session

    def command(self, changes: Mapping[str, Any]) -> EngineCommand:
        """What to run with these changes. Raises LaunchError."""
        command: EngineCommand = _answered(lambda: self._opened().command(changes))
        return command

    def diagnose(
        self, lines: Iterable[str], *, version: str | None = None, exit_code: int | None = None
    ) -> Diagnosis:
        """What an engine died of, by its log."""

        def asked() -> Diagnosis:
            from speclaunch.serving.launch.diagnosis.diagnose import diagnose  # noqa: PLC0415 - large

            return diagnose(lines, version=version, exit_code=exit_code)

        found: Diagnosis = _answered(asked)
        return found

    def next_step(self, attempts: Sequence[Attempt]) -> Rung | LadderEnd:
        """The next rung of the ladder after these attempts."""
        try:
            step: Rung | LadderEnd = _answered(lambda: self._opened().next_step(attempts))
        except LaunchError as error:
            return LadderEnd(str(error))
        return step

    def _opened(self) -> Any:
        return pickle.loads(self._session)  # noqa: S301 - of our own planner


def _answered(question: Callable[[], Any]) -> Any:
    """What a process of its own says to a question; the memory that it takes goes with it.

    Raises LaunchError.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        _answer_and_end(question, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    if not said:
        raise LaunchError("the next attempt could not be planned: its planner was killed")
    kind, answer = pickle.loads(said)  # noqa: S301 - of our own child
    if kind == "refused":
        raise LaunchError(*answer[:1], help=answer[1])
    if kind == "bug":
        raise LaunchError(f"the next attempt could not be planned: {answer}")
    return answer


def _answer_and_end(question: Callable[[], Any], pipe: int) -> NoReturn:
    """In the planner: answer into `pipe`, end."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # they are noted by who waits
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            said: tuple[str, Any] = ("answer", question())
        except LaunchError as error:
            (problem,) = error.problems
            said = ("refused", (problem.message, problem.help))
        except (ImportError, AttributeError) as error:
            said = ("refused", (f"speclaunch was replaced while it ran: {error}", "launch again"))
        except Exception as error:
            said = ("bug", f"{type(error).__name__}: {error}")
        with os.fdopen(pipe, "wb") as file:
            pickle.dump(said, file, pickle.HIGHEST_PROTOCOL)
    finally:
        os._exit(0)
