"""One engine start and how it ended, and the change that the next one makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from speclaunch.record import record

if TYPE_CHECKING:
    from speclaunch.launch.diagnosis.interface import Diagnosis
    from speclaunch.launch.log.phases import PhaseStep
    from speclaunch.plan.budget import MemoryBudget


@record
class Rung:
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


@record
class Attempt:
    """One engine start. `changes` are all changes against the recipe that it ran with."""

    number: int
    changes: Mapping[str, Any] = field(default_factory=dict)
    rung: Rung | None = None
    """The rung that led here; None for the first."""
    steps: tuple[PhaseStep, ...] = ()
    served: bool = False
    diagnosis: Diagnosis | None = None
    """None while it runs, and where it ended as it should."""
    tokens: int | None = None
    """`max_total_num_tokens` that the engine logged."""
