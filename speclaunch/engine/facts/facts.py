"""Everything that is known about a deployment beyond what was written, gathered once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from speclaunch.engine.facts.checkpoint import Checkpoint
from speclaunch.engine.facts.hardware import Hardware
from speclaunch.engine.facts.known_models import ModelPair
from speclaunch.engine.facts.unknown import UnknownFact

if TYPE_CHECKING:
    from speclaunch.engine.facts.runtime import Runtime

__all__ = ["Facts", "UnknownFact", "checkpoint_fact"]


def checkpoint_fact(name: str) -> str:
    """How the facts of a checkpoint are called, for where they are unknown."""
    return f"the checkpoint {name[:200]}"


class Facts(Struct, frozen=True):
    """Target and draft checkpoint, hardware, engine runtime; None where unknown.

    `draft` is the checkpoint named by `speculative_draft_model_path`; it is None, too, where none
    is named (`plan.value("speculative_draft_model_path")` tells the two apart).
    """

    target: Checkpoint | None = None
    draft: Checkpoint | None = None
    hardware: Hardware | None = None
    runtime: Runtime | None = None
    unknown: tuple[UnknownFact, ...] = ()
    made_for_target: tuple[ModelPair, ...] = ()
    """The drafts that the index knows for the target, the best founded first."""

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """Target and draft, as far as they are known; one that is both, once."""
        found = (self.target, self.draft)
        return tuple({one.name: one for one in found if one is not None}.values())

    def why_unknown(self, checkpoint: str) -> UnknownFact | None:
        """Why nothing is known of a checkpoint; None where it is not said."""
        what = checkpoint_fact(checkpoint)
        return next((fact for fact in reversed(self.unknown) if fact.what == what), None)
