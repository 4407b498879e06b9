"""Data of a launch: plain, small, and picklable.

The planner process makes a `PlannedLaunch`; the process that supervises the engine uses it and
loads no rules, memory budget or catalogues (`planner_process.py`). After a failed attempt it calls
a `Planner`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from msgspec import Struct

if TYPE_CHECKING:
    from pydantic import BaseModel

    from speclaunch.deployments import Launch
    from speclaunch.engine import Address, Alternative, MemoryBudget, RenderedArgs
    from speclaunch.serving.launch.agreement.records import RankGroup
    from speclaunch.serving.launch.diagnosis.interface import Diagnosis
    from speclaunch.serving.launch.journal import JournalHeader
    from speclaunch.serving.launch.phases import PhaseStep

    Section = TypeVar("Section", bound=BaseModel)


class Rung(Struct, frozen=True):
    """One change to the settings, its reason, and its cost.

    `changes` maps server arguments (by the newest engine's names) to their new values. They are
    added to the changes of earlier rungs.
    """

    name: str
    changes: Mapping[str, Any]
    why: str
    cost: str
    """Loss compared with the recipe: KV tokens, concurrency, speculation depth."""
    predicted: MemoryBudget | None = None


class Attempt(Struct, frozen=True):
    """One engine start. `changes` are all its changes to the recipe."""

    number: int
    changes: Mapping[str, Any] = {}
    rung: Rung | None = None
    """Rung that led to this attempt; None for the first."""
    steps: tuple[PhaseStep, ...] = ()
    served: bool = False
    diagnosis: Diagnosis | None = None
    """Diagnosis of a failure; None while the engine runs, and after a normal end."""
    tokens: int | None = None
    """`max_total_num_tokens` that the engine logged."""


class EngineCommand(Struct, frozen=True):
    """Command for one set of changes, and its form in the journal."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    """Complete environment of the engine."""
    rendered: RenderedArgs
    secrets: tuple[str, ...]
    """Values to redact in all logs."""
    secrets_file: tuple[Path, str] | None
    """Private file that `argv` names, and its content, written before each start."""
    shown_argv: tuple[str, ...]
    shown_env: Mapping[str, str | None]
    recipe_diff: tuple[str, ...]
    """Changes as overrides of the recipe."""
    watch: bool
    """True if the engine always generates on request."""


class LadderEnd(Struct, frozen=True):
    """End of the ladder: why no rung follows, and other remedies."""

    why: str
    help: str | None = None
    infeasible: bool = False
    """True if no setting that may be stepped can make it fit."""
    alternatives: tuple[Alternative, ...] = ()


class Planner(Protocol):
    """Planner that knows the recipe, the engine and the memory budget."""

    def command(self, changes: Mapping[str, Any]) -> EngineCommand:
        """Return the command for these changes. Raises LaunchError if the version is unknown."""

    def diagnose(
        self, lines: Iterable[str], *, version: str | None = None, exit_code: int | None = None
    ) -> Diagnosis:
        """Return the diagnosis of an engine's log."""

    def next_step(self, attempts: Sequence[Attempt]) -> Rung | LadderEnd:
        """Return the next rung of the ladder after these attempts."""

    def write_lock(self, changes: Mapping[str, Any], accept_length: float | None) -> Path:
        """Write the lock of the deployment with these changes; return its path.

        `accept_length`: acceptance length of its first generation. Raises LaunchError.
        """


class PlannedLaunch(Struct, frozen=True):
    """A launch that may begin."""

    name: str
    """Name of the deployment."""
    version: str
    address: Address
    model: str
    """Model name that clients use."""
    directory: Path
    """Run directory: logs and journal."""
    locks: Mapping[str, str]
    """Required locks, from lock name to description."""
    header: JournalHeader
    settings: Launch
    restarts: bool
    recovers: bool
    max_attempts: int
    secrets: tuple[str, ...]
    memory_key: str
    """Key of the last known good settings (`last_good.key`)."""
    changes: Mapping[str, Any]
    """Changes of the first attempt to the recipe."""
    rung: Rung | None
    """Reason for these changes if a failure was predicted."""
    announced: tuple[str, ...]
    """Messages about these changes, shown before the first attempt."""
    first: EngineCommand
    notes: tuple[str, ...] = ()
    """Notes from rendering the arguments."""
    command_json: Mapping[str, Any] = {}
    """Command for programs that read our output, without secrets."""
    worker: bool = False
    """True for a rank that serves no requests: all but the first of `nnodes`."""
    group: RankGroup | None = None
    """Ranks that have to agree; None for a rank alone."""
    weight_bytes: tuple[int | None, int | None] = (None, None)
    """Weight bytes of target and draft, if known."""
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
    """Return a section's values without its validation library, which is large and not needed to
    read attributes.
    """

    def plain(model: Any) -> Any:
        fields = getattr(type(model), "model_fields", None)
        if fields is None:
            return model
        return SimpleNamespace(**{name: plain(getattr(model, name)) for name in fields})

    return cast("Section", plain(section))
