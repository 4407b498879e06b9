"""Facts about a deployment that its configuration does not state, gathered once."""

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
    """Return the name that an UnknownFact uses for a checkpoint's facts."""
    return f"the checkpoint {name[:200]}"


class Facts(Struct, frozen=True):
    """Target and draft checkpoint, hardware, and engine runtime; None if unknown.

    `draft` is the checkpoint that `speculative_draft_model_path` names. It is also None if no draft
    is named (check `plan.value("speculative_draft_model_path")`).
    """

    target: Checkpoint | None = None
    draft: Checkpoint | None = None
    hardware: Hardware | None = None
    runtime: Runtime | None = None
    unknown: tuple[UnknownFact, ...] = ()
    made_for_target: tuple[ModelPair, ...] = ()
    """Drafts that the index lists for the target, best supported first."""

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """Known checkpoints of target and draft, without duplicates."""
        found = (self.target, self.draft)
        return tuple({fact.name: fact for fact in found if fact is not None}.values())

    def why_unknown(self, checkpoint: str) -> UnknownFact | None:
        """Return why a checkpoint is unknown; None if no reason is recorded."""
        what = checkpoint_fact(checkpoint)
        return next((fact for fact in reversed(self.unknown) if fact.what == what), None)
