"""The memory budget: where a GPU's memory goes, and whether it is enough.

Only the nouns; `speclaunch.engine.plan.memory` works them out. Sizes are bytes of one GPU (one
rank).
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class MemoryPhase(StrEnum):
    """A phase of the engine's start (or its service) that asks for memory, in order.

    The values are those of `speclaunch.serving.launch.log.phases.Phase`, which reads them off a
    log.
    """

    TARGET_WEIGHTS = "load target weights"
    DRAFT_WEIGHTS = "load draft weights"
    KV_POOL = "allocate KV cache"
    GRAPHS = "capture CUDA graphs"
    SERVING = "serve"


class Fit(StrEnum):
    """The memory verdict: whether the memory is enough. The values are those of JSON documents."""

    FITS = "fits"
    """It holds at the likely bound: with what graphs and activations are expected to need."""
    TIGHT = "tight"
    """It holds only in the best case: with every estimate at its least."""
    FAILS = "fails"
    UNKNOWN = "unknown"

    @property
    def text(self) -> str:
        """The verdict as the predicate of a sentence about a deployment."""
        return {Fit.FITS: "fits", Fit.TIGHT: "is tight", Fit.FAILS: "does not fit"}.get(
            self, "may or may not fit"
        )

    @property
    def may_serve(self) -> bool:
        """True if a start may succeed, even if only in the best case."""
        return self in (Fit.FITS, Fit.TIGHT)


class MemoryUse(StrEnum):
    """What memory is used for. The value is what the user sees."""

    OTHERS = "other processes"
    RUNTIME = "CUDA context and libraries"
    TARGET_WEIGHTS = "target weights"
    DRAFT_WEIGHTS = "draft weights"
    TARGET_KV = "target KV cache"
    DRAFT_KV = "draft KV cache"
    STATE = "recurrent state"
    """Of Mamba and linear attention layers: by request, not by token."""
    REQUEST_SLOTS = "request slots"
    GRAPHS = "CUDA graphs"
    ACTIVATIONS = "activations"
    FREE = "free"


class MemorySize(Struct, frozen=True):
    """A number of bytes, how it comes about (with its numbers), and whether it is exact.

    `exact` is False for an estimate: graphs, activations, the runtime's own memory. `counted` is
    False for weights that nobody counted: their files, divided evenly.
    """

    bytes: int
    why: str
    exact: bool = True
    counted: bool = True


class MemoryShare(Struct, frozen=True):
    """What one use takes of a GPU."""

    use: MemoryUse
    size: MemorySize


class RankBudget(Struct, frozen=True):
    """The memory of ranks that are alike. The shares (`FREE` included) add up to `memory_bytes`,
    or to `short_bytes` more than it where it is not enough."""

    ranks: tuple[int, ...]
    memory_bytes: int
    shares: tuple[MemoryShare, ...]
    short_bytes: int = 0


class MemoryBudget(Struct, frozen=True):
    """Whether a deployment fits, where it would fail, and what it leaves.

    Where `fit` is UNKNOWN, `unknown` names the facts that are missing, and everything that can be
    told without them is still there. Token and request counts are of one data-parallel replica,
    as the engine logs them (`max_total_num_tokens`, `max_running_requests`).
    """

    fit: Fit
    why: str
    """One sentence with the numbers."""
    phase: MemoryPhase | None = None
    """Where it fails."""
    message: str | None = None
    """What the engine of this version prints then."""
    ranks: tuple[RankBudget, ...] = ()
    target_kv: MemorySize | None = None
    """Bytes of KV cache for one token, target."""
    draft_kv: MemorySize | None = None
    tokens: int | None = None
    """Tokens that the KV cache holds."""
    running_requests: int | None = None
    """`max_running_requests` that remains after the engine has looked at the pool."""
    context_length: int | None = None
    requests_at_context: int | None = None
    """Requests of the whole context length that fit at the same time."""
    mem_fraction_static: float | None = None
    working_fractions: tuple[float, float] | None = None
    """The least and the largest `mem_fraction_static` that work, to 0.001; None: there is none,
    or it is not known."""
    likely_fractions: tuple[float, float] | None = None
    """The least and the largest with which it FITS; None: there is none, or it is not known."""
    impossible: bool = False
    """Whether the weights alone, as few as they can be, are more than a GPU that nobody else uses
    has for them: no setting that is stepped makes it fit, and no start succeeds."""
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What else the user should know: limits that the engine lowers, estimates that decide."""
