"""What a launch is made of: plain data, small, and picklable.

A `PlannedLaunch` is worked out by a process that loads what planning needs (rules, memory budget,
catalogues) and used by one that does not: see `apart.py`. What only a failed attempt needs is
requested from a `Planner`.
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
    from speclaunch.serving.launch.agreement.group import RankGroup
    from speclaunch.serving.launch.diagnosis.interface import Diagnosis
    from speclaunch.serving.launch.log.phases import PhaseStep

    Section = TypeVar("Section", bound=BaseModel)


class Rung(Struct, frozen=True):
    """One change to the settings, why, and what it costs.

    `changes` maps server arguments, by the newest engine's names, to their new values. They add
    to the changes of the rungs before.
    """

    name: str
    changes: Mapping[str, Any]
    why: str
    cost: str
    """What is lost against the recipe: KV tokens, concurrency, speculation depth."""
    predicted: MemoryBudget | None = None


class Attempt(Struct, frozen=True):
    """One engine start. `changes` are all changes against the recipe that it ran with."""

    number: int
    changes: Mapping[str, Any] = {}
    rung: Rung | None = None
    """The rung that led here; None for the first."""
    steps: tuple[PhaseStep, ...] = ()
    served: bool = False
    diagnosis: Diagnosis | None = None
    """None while it runs, and where it ended as it should."""
    tokens: int | None = None
    """`max_total_num_tokens` that the engine logged."""


class EngineCommand(Struct, frozen=True):
    """What is run for one set of changes, and how the record shows it."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    """The whole environment of the engine."""
    asked: RenderedArgs
    secrets: tuple[str, ...]
    """Values that no log may show."""
    secrets_file: tuple[Path, str] | None
    """The private file that `argv` names, and what is written into it before each start."""
    shown_argv: tuple[str, ...]
    shown_env: Mapping[str, str | None]
    recipe_diff: tuple[str, ...]
    """The changes as overrides of the recipe."""
    watch: bool
    """Whether it is an engine that generates whenever it is asked to."""


class LadderEnd(Struct, frozen=True):
    """There is no further rung: why, and what else would help."""

    why: str
    help: str | None = None
    infeasible: bool = False
    """Whether no setting that may be stepped can make it fit."""
    alternatives: tuple[Alternative, ...] = ()


class Planner(Protocol):
    """Who knows the recipe, the engine and the memory budget."""

    def command(self, changes: Mapping[str, Any]) -> EngineCommand:
        """What to run with these changes. Raises LaunchError where the version cannot be told."""

    def diagnose(
        self, lines: Iterable[str], *, version: str | None = None, exit_code: int | None = None
    ) -> Diagnosis:
        """What an engine died of, by its log."""

    def next_step(self, attempts: Sequence[Attempt]) -> Rung | LadderEnd:
        """The next rung of the ladder after these attempts."""


class PlannedLaunch(Struct, frozen=True):
    """A launch that may begin."""

    name: str
    """Of the deployment."""
    version: str
    address: Address
    model: str
    """The name that clients call the model by."""
    directory: Path
    """Of this run: logs and journal."""
    locks: Mapping[str, str]
    """What it must hold, by the name of the lock, in words."""
    about: Mapping[str, Any]
    """What the journal says of it beforehand."""
    settings: Launch
    restarts: bool
    recovers: bool
    max_attempts: int
    secrets: tuple[str, ...]
    memory_key: str
    """Under which it is remembered what served (`last_good.key`)."""
    changes: Mapping[str, Any]
    """What the first attempt changes against the recipe."""
    rung: Rung | None
    """Why it does, where that was foreseen."""
    announced: tuple[str, ...]
    """What is said of that before the first attempt."""
    first: EngineCommand
    notes: tuple[str, ...] = ()
    """What the spelling of the arguments has to say."""
    command_json: Mapping[str, Any] = {}
    """The command for programs that read our output, without secrets."""
    worker: bool = False
    """Whether it is a rank that serves no requests: of `nnodes`, all but the first."""
    group: RankGroup | None = None
    """The ranks that have to agree; None where it is alone."""
    weight_bytes: tuple[int | None, int | None] = (None, None)
    """Of target and draft, where they are known."""
    smoke: bool = False
    tiny: bool = False
    """True if it serves a model that speclaunch makes for the CPU engine."""
    for_good: bool = False
    """Whether the process ends with this launch."""


def without_model(section: Section) -> Section:
    """The values of a section without the library that validated them: it is large, and whoever
    only reads attributes does without."""

    def plain(model: Any) -> Any:
        fields = getattr(type(model), "model_fields", None)
        if fields is None:
            return model
        return SimpleNamespace(**{name: plain(getattr(model, name)) for name in fields})

    return cast("Section", plain(section))
