"""What the engine works out of its arguments and has no argument for."""

from __future__ import annotations

from speclaunch.plan.settings import Settings
from speclaunch.plan.topics import draft_memory, parallel, spec_v2
from speclaunch.record import record


@record
class Derived:
    """Each fact is told by its topic (`topics/`). Raises UnknownValueError for what nobody can
    tell."""

    settings: Settings

    @property
    def attention_ranks(self) -> int:
        """Ranks that share the attention of a batch among them (DP attention); 1 without it."""
        return parallel.attention_ranks(self.settings)

    @property
    def replicas(self) -> int:
        """Copies of the whole model, each with GPUs of its own."""
        return parallel.replicas(self.settings)

    @property
    def spec_v2(self) -> bool:
        """Whether the V2 workers of speculation run."""
        return spec_v2.runs(self.settings)

    @property
    def draft_in_pool(self) -> bool:
        """Whether the draft's memory is a part of the static one, and not of what that leaves."""
        return draft_memory.draft_in_pool(self.settings)
