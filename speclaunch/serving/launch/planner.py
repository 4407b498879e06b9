"""Planner of a launch, in a separate process, so that the remaining process stays small.

```
speclaunch ──fork──> planner: command line, recipe, rules, facts, memory budget
    │<───── PlannerResult ────┘ then it exits
    └─> guard ──> engine
```

The planner runs the usual command up to the start. If it refuses, it prints the reason and exits;
the waiting process exits with the same code. Otherwise it hands over a small, picklable
`PlannedLaunch`. Meanwhile the waiting process loads supervision code and starts the guard. Rules,
catalogues and their libraries therefore never enter this process, which lives as long as the
engine. If a failed attempt needs other settings, a new process reopens the session, answers and
exits.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, Protocol, TypeVar, cast

from msgspec import Struct

from speclaunch.core import ExitCode, LaunchError, SpeclaunchError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from speclaunch.deployments import Launch
    from speclaunch.engine import Address, MemoryBudget, RenderedArgs
    from speclaunch.serving.launch.agreement.records import RankGroup
    from speclaunch.serving.launch.diagnosis.interface import Diagnosis
    from speclaunch.serving.launch.journal import JournalHeader
    from speclaunch.serving.launch.phases import PhaseStep


Section = TypeVar("Section", bound="BaseModel")


class Rung(Struct, frozen=True):
    """One change to the settings, its reason, and its cost.

    `changes` maps server arguments (by the newest engine's names) to their new values. They are
    added to the changes of earlier rungs.
    """

    name: str
    changes: Mapping[str, Any]
    why: str
    cost: str
    """Loss compared with the recipe, in KV tokens, concurrency and speculation depth."""
    predicted: MemoryBudget | None = None


class Attempt(Struct, frozen=True):
    """One engine start. `changes` are all changes to the recipe."""

    number: int
    changes: Mapping[str, Any] = {}
    rung: Rung | None = None
    steps: tuple[PhaseStep, ...] = ()
    served: bool = False
    diagnosis: Diagnosis | None = None
    """Diagnosis of a failure; None while the engine runs, and after a normal end."""
    tokens: int | None = None
    """`max_total_num_tokens` that the engine logged; None if it logged none."""


class EngineCommand(Struct, frozen=True):
    """Command for one set of changes, and its redacted form for the journal."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    """Complete environment of the engine."""
    rendered: RenderedArgs
    secrets: tuple[str, ...]
    """Values to redact in all logs."""
    secrets_file: tuple[Path, str] | None
    """Path (in `argv`) and text of the private file to write before each start; None without
    secrets."""
    shown_argv: tuple[str, ...]
    shown_env: Mapping[str, str | None]
    recipe_diff: tuple[str, ...]
    """Changes as overrides of the recipe."""
    watch: bool
    """True to watch the engine for hangs; False if its memory may be released on purpose."""


class LadderEnd(Struct, frozen=True):
    """End of the ladder: why no rung follows, and the remedy."""

    why: str
    help: str | None = None


class Planner(Protocol):
    """Planner that knows the recipe, the engine and the memory budget."""

    def command(self, changes: Mapping[str, Any]) -> EngineCommand:
        """Return the command for the changes. Raises LaunchError for an unknown engine version."""

    def diagnose(
        self, lines: Iterable[str], *, version: str | None = None, exit_code: int | None = None
    ) -> Diagnosis:
        """Return the diagnosis of an engine's log."""

    def next_step(self, attempts: Sequence[Attempt]) -> Rung | LadderEnd:
        """Return the ladder's next rung, or its end, after these attempts."""

    def write_lock(self, changes: Mapping[str, Any], accept_length: float | None) -> Path:
        """Write the lock of the deployment with these changes; return its path.

        `accept_length`: acceptance length of the first generation, if known. Raises LaunchError.
        """


class PlannedLaunch(Struct, frozen=True):
    """Everything that a launch needs to begin."""

    name: str
    version: str
    address: Address
    model: str
    """Model name that clients use."""
    directory: Path
    """Run directory: logs and journal."""
    locks: Mapping[str, str]
    """Descriptions of the required locks, by lock name."""
    header: JournalHeader
    settings: Launch
    restarts: bool
    recovers: bool
    max_attempts: int
    secrets: tuple[str, ...]
    memory_key: str
    """Key of the last known good settings (`journal.settings_key`)."""
    changes: Mapping[str, Any]
    """Changes to the recipe for the first attempt."""
    rung: Rung | None
    """Rung that led to these changes if a failure was predicted; None otherwise."""
    announced: tuple[str, ...]
    """Messages about `changes`, shown before the first attempt."""
    first: EngineCommand
    notes: tuple[str, ...] = ()
    """Notes for the user about how arguments were rendered."""
    command_json: Mapping[str, Any] = {}
    """Command as JSON for `--output-format json`, without secrets."""
    worker: bool = False
    """True for a rank that serves no requests (any but the first of `nnodes`)."""
    group: RankGroup | None = None
    weight_bytes: tuple[int | None, int | None] = (None, None)
    """Weight bytes of target and draft; None if unknown."""
    smoke: bool = False
    tiny: bool = False
    """True if the launch serves a tiny model made for the CPU engine."""
    exits_after: bool = False
    """True if the process exits after this launch."""
    writes_lock: bool = False
    """True if a lock is written once the engine has served."""
    stops_degraded: bool = False
    """True if the launch ends when the acceptance length drops (serving.on_degraded)."""
    on_degraded: Path | None = None
    """Program to run when the acceptance length drops (`--on-degraded-exec`)."""


def without_model(section: Section) -> Section:
    """Return a section's values as plain objects, so that reading attributes does not require the
    large validation library."""

    def plain(model: Any) -> Any:
        fields = getattr(type(model), "model_fields", None)
        if fields is None:
            return model
        return SimpleNamespace(**{name: plain(getattr(model, name)) for name in fields})

    return cast("Section", plain(section))


class PlannerResult(Struct, frozen=True):
    """Result that a planner hands over to the waiting process."""

    start: PlannedLaunch
    session: bytes
    """Pickled Session, which plans the next attempt after a failure."""
    detach: bool
    verbose: bool
    as_json: bool
    title: str | None
    """Process title that hides secrets; None if the command line has none."""


_to_supervisor: BinaryIO | None = None
"""Pipe from the planner to the waiting process; None in all other processes."""


def in_planner_process() -> bool:
    """True if this process plans for another process."""
    return _to_supervisor is not None


def hand_over(handed: PlannerResult) -> NoReturn:
    """Send the planner's result to the waiting process, and exit."""
    assert _to_supervisor is not None  # noqa: S101 - for the type checker
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(BrokenPipeError):  # it was killed
        pickle.dump(handed, _to_supervisor, pickle.HIGHEST_PROTOCOL)
        _to_supervisor.close()
    os._exit(ExitCode.CLEAN)  # unloading modules would only delay the other process


class ForkedPlanner:
    """Handle by which the waiting process controls the planner."""

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
    """Fork; return the planner's handle, or None in the planner, which plans and calls `hand_over`.

    Call it while the process has only one thread and few modules.
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
        command: EngineCommand = _answered(lambda: self._opened().command(changes))
        return command

    def diagnose(
        self, lines: Iterable[str], *, version: str | None = None, exit_code: int | None = None
    ) -> Diagnosis:

        def diagnosis() -> Diagnosis:
            from speclaunch.serving.launch.diagnosis.diagnose import diagnose  # noqa: PLC0415 - large

            return diagnose(lines, version=version, exit_code=exit_code)

        found: Diagnosis = _answered(diagnosis)
        return found

    def next_step(self, attempts: Sequence[Attempt]) -> Rung | LadderEnd:
        try:
            step: Rung | LadderEnd = _answered(lambda: self._opened().next_step(attempts))
        except LaunchError as error:
            return LadderEnd(str(error))
        return step

    def write_lock(self, changes: Mapping[str, Any], accept_length: float | None) -> Path:
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
    """Return the result of `question`, called in a separate process to free its memory.

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
