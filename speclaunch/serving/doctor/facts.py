"""Facts of this machine, gathered once within a time limit, and the check lines.

`MachineFacts` is frozen, so a check is a pure function of it. An unknown value is an `UnknownFact`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Generic, TypeVar

from msgspec import Struct

from speclaunch.core import SpeclaunchError
from speclaunch.engine import (
    Checkpoint,
    Hardware,
    MemoryBudget,
    MissingPath,
    Packages,
    Runtime,
    UnknownFact,
)

NOT_READ = UnknownFact("this", "it was not checked")


class OwnInstallation(Struct, frozen=True):
    """Installation of speclaunch itself."""

    version: str
    python: str
    executable: Path
    home: Path


class CpuEngineState(Struct, frozen=True):
    """Installation of speclaunch's CPU engine on this machine."""

    installed: bool
    version: str
    python: Path
    begun: bool = False
    """True if the engine's directory exists, so an installation was at least started."""


class Process(Struct, frozen=True):
    """A process as the operating system shows it."""

    pid: int
    parent: int
    name: str
    argv: tuple[str, ...] = ()
    """Command line; empty for a zombie or if access is denied."""
    user: str = ""
    zombie: bool = False
    session: int | None = None
    age_seconds: float | None = None
    run: str | None = None
    """Run ID that speclaunch sets in the environment of its engines; None for other processes."""
    ports: tuple[int, ...] = ()
    """TCP ports on which the process listens; empty unless it belongs to an engine."""


class VolumeUse(StrEnum):
    """Use of a directory, as text for users."""

    MODELS = "models"
    SPECLAUNCH = "speclaunch"
    TEMPORARY = "temporary files"
    KERNELS = "compiled kernels"
    SHARED_MEMORY = "shared memory"


class DiskVolume(Struct, frozen=True):
    """A directory that speclaunch or an engine uses, and the free and total bytes of its disk."""

    use: VolumeUse
    path: Path
    device: int
    """Device number of the disk, equal for all directories on that disk."""
    free: int
    total: int
    writable: bool


class MachineMemory(Struct, frozen=True):
    """Main memory (in bytes) and processors, with this process's limits."""

    total: int
    available: int
    limit: int | None = None
    """Memory limit of a container or control group; None if unlimited."""
    used_of_limit: int | None = None
    cpus: float = 1
    """Processors that this process may use; fractional with a quota."""
    machine_cpus: int = 1


class ProcessLimits(Struct, frozen=True):
    """Limits of a process (`ulimit`); None means unlimited."""

    files_soft: int | None
    files_hard: int | None
    locked_memory: int | None
    processes: int | None


class Hub(Struct, frozen=True):
    """Settings for model downloads: cache, token, and whether downloads are allowed."""

    cache: Path
    token: str | None = None
    """Variable or file with the access token, never the token itself; None without a token."""
    offline: str | None = None
    """Environment variable that forbids downloads; None if no such variable is set."""
    modelscope: bool = False
    """True if models come from ModelScope, whose cache is not inspected."""


class LocalModel(Struct, frozen=True):
    """A checkpoint that the recipe names, and its state on this machine."""

    role: str
    """`target` or `draft`."""
    name: str
    is_url: bool = False
    is_path: bool = False
    present: bool = False
    """True if the checkpoint's directory has a config.json, its file exists, or the hub cache has
    its weights."""
    generated: bool = False
    """True for a tiny model that the launch creates."""
    unfinished: int = 0
    """Number of unfinished downloads."""
    unfinished_bytes: int = 0
    weight_files: bool | None = None
    """True if weight files exist; None if that was not checked."""
    checkpoint: Checkpoint | None = None
    unknown: UnknownFact | None = None
    readable: bool = True


class Port(Struct, frozen=True):
    """Address on which the engine would listen, and whether the address is free."""

    host: str
    number: int
    refused: str | None = None
    """Error if the port cannot be bound; None if it can."""
    holder: int | None = None
    """ID of the process that listens on the port; None if there is none or it is unknown."""
    free: int | None = None


class Tools(Struct, frozen=True):
    """Compilers, CUDA libraries and GPU devices that an engine finds."""

    compiler: Path | None = None
    nvcc: Path | None = None
    compat: bool = False
    """True if a CUDA forward-compatibility package exists, so an older driver may suffice."""
    devices: tuple[str, ...] = ()
    """Vendors whose accelerators have a device file on this machine, even without a working
    driver."""


class RecipeNeeds(Struct, frozen=True):
    """Requirements of a recipe for the machine; None means unknown or not set."""

    name: str
    version: str
    """SGLang version that the recipe is checked for."""
    called: str | None = None
    """Value of `recipe=`: a path, or the name of a recipe shipped with speclaunch."""
    needs: str | None = None
    """`engine.version` of the recipe, in pip's syntax."""
    pinned: str | None = None
    fits: bool = True
    """True if the installed version can serve the recipe."""
    requested: tuple[str, ...] = ()
    """Versions that `--engine` names."""
    python: str | None = None
    cpu: bool = False
    """True if the recipe runs on speclaunch's CPU engine."""
    hardware: str | None = None
    """Hardware that the rules assume, as text for users."""
    elsewhere: bool = False
    """True if `--hardware` describes another machine. Problems of this machine then do not prevent
    the launch."""
    meant_for: str | None = None
    """Hardware that the recipe names, if it differs from this machine's."""
    device: str | None = None
    gpus: int | None = None
    """Number of GPUs needed on each machine; None if unknown."""
    tensor_parallel: int | None = None
    mem_fraction: float | None = None
    attention_backends: tuple[str, ...] = ()
    algorithm: str | None = None
    dummy_weights: bool = False
    """True if no weights are read (`load_format: dummy`)."""
    compiled: bool = False
    """True if all code that the engine would compile for the recipe is already compiled."""
    budget: MemoryBudget | None = None
    """Predicted memory use on this machine; None if the rules could not run."""
    own_variables: frozenset[str] = frozenset()
    """Names of the variables that the recipe or the CPU engine sets; the rules check them."""


class MachineFacts(Struct, frozen=True):
    """Facts of this machine that the checks read."""

    own: OwnInstallation
    runtime: Runtime | UnknownFact = NOT_READ
    packages: Packages | UnknownFact = NOT_READ
    cpu_engine: CpuEngineState | UnknownFact = NOT_READ
    hardware: Hardware | UnknownFact = NOT_READ
    processes: tuple[Process, ...] | UnknownFact = NOT_READ
    user: str = ""
    volumes: tuple[DiskVolume | UnknownFact, ...] = ()
    memory: MachineMemory | UnknownFact = NOT_READ
    shared_memory: DiskVolume | UnknownFact = NOT_READ
    limits: ProcessLimits | UnknownFact = NOT_READ
    hub: Hub | UnknownFact = NOT_READ
    models: tuple[LocalModel, ...] = ()
    missing: tuple[MissingPath, ...] | UnknownFact = ()
    port: Port | UnknownFact = NOT_READ
    tools: Tools | UnknownFact = NOT_READ
    env: Mapping[str, str] = {}
    """Environment that the engine would get."""
    target: RecipeNeeds | None = None

    @property
    def nvidia(self) -> Hardware | None:
        """NVIDIA GPUs of this machine; None if there are none or they could not be read."""
        found = self.hardware
        if isinstance(found, Hardware) and found.vendor.value == "nvidia":
            return found
        return None


T = TypeVar("T")

SECONDS = 5.0
"""Time limit in seconds for a disk or a driver to answer."""


class NoAnswer(UnknownFact, frozen=True):
    """A fact that is unknown because its task did not end in time."""


class PendingAnswer(Generic[T]):
    """Result of a task that may be running."""

    def __init__(self, what: str, run: Callable[[], T], seconds: float, deadline: float) -> None:
        self._what, self._seconds, self._deadline = what, seconds, deadline
        self._found: list[T] = []
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._work, args=(run,), daemon=True)
        self._thread.start()

    def get(self) -> T | UnknownFact:
        """Return the result, or an UnknownFact if the task raised or did not end in time."""
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
        """Start a task. `what` names its result in error reports."""
        return PendingAnswer(what, run, self._seconds, self._deadline)


def unknown(what: str, error: BaseException) -> UnknownFact:
    """Return an UnknownFact for the result `what`, with the error as its reason."""
    if isinstance(error, SpeclaunchError):
        problem = error.problems[0]
        return UnknownFact(what, problem.message, problem.help)
    name = type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        where = f": {error.filename}" if error.filename else ""
        return UnknownFact(what, f"{error.strerror}{where}")
    return UnknownFact(what, f"{name}: {error}" if str(error) else name)


class CheckState(StrEnum):
    """States of a check, from best to worst."""

    OK = "ok"
    NOTE = "note"
    UNKNOWN = "unknown"
    WARNING = "warning"
    """The launch is likely to fail, or to be costly."""
    ERROR = "error"
    """A problem that prevents the recipe's launch."""


_ORDER = tuple(CheckState)


class CheckLine(Struct, frozen=True):
    """Result of a check: state, observation, consequence, remedy."""

    check: str
    """Name of the check, one or two words long. Scripts can rely on it."""
    state: CheckState
    found: str
    why: str = ""
    fix: str | None = None
    """Remedy: a shell command or a sentence; None if no action is needed."""
    command: bool = False
    """True if `fix` is a command that can be pasted into a shell unchanged."""


class CheckSection(Struct, frozen=True):
    """Check lines about one aspect of the machine."""

    title: str
    lines: tuple[CheckLine, ...]


def worst(lines: Iterable[CheckLine]) -> CheckState:
    """Return the worst state of all lines; ok if there are none."""
    return max((line.state for line in lines), key=_ORDER.index, default=CheckState.OK)


def count(lines: Iterable[CheckLine], state: CheckState) -> int:
    """Return the number of lines with `state`."""
    return sum(line.state is state for line in lines)
