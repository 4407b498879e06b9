"""The memory budget: how a GPU's memory is used, and whether the deployment fits.

`speclaunch.engine.plan.memory` computes the values. Sizes are bytes on one GPU (one rank).
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class MemoryPhase(StrEnum):
    """The phases of startup and serving that allocate memory, in chronological order.

    The values match `speclaunch.serving.launch.engine_log.Phase`.
    """

    TARGET_WEIGHTS = "load target weights"
    DRAFT_WEIGHTS = "load draft weights"
    KV_POOL = "allocate KV cache"
    GRAPHS = "capture CUDA graphs"
    SERVING = "serve"


class Fit(StrEnum):
    """The memory verdict. JSON documents contain the values."""

    FITS = "fits"
    """Fits with the expected sizes of graphs and activations."""
    TIGHT = "tight"
    """Fits only in the best case, with every estimate at its minimum."""
    FAILS = "fails"
    UNKNOWN = "unknown"

    @property
    def text(self) -> str:
        """Verb phrase for a sentence about a deployment, such as `does not fit`."""
        return {Fit.FITS: "fits", Fit.TIGHT: "is tight", Fit.FAILS: "does not fit"}.get(
            self, "may or may not fit"
        )

    @property
    def may_serve(self) -> bool:
        """True if a start may succeed, even if only in the best case."""
        return self in (Fit.FITS, Fit.TIGHT)


class MemoryUse(StrEnum):
    """A use of memory. The values are shown to users."""

    OTHERS = "other processes"
    RUNTIME = "CUDA context and libraries"
    TARGET_WEIGHTS = "target weights"
    DRAFT_WEIGHTS = "draft weights"
    TARGET_KV = "target KV cache"
    DRAFT_KV = "draft KV cache"
    STATE = "recurrent state"
    """State of Mamba and linear attention layers, stored per request rather than per token."""
    REQUEST_SLOTS = "request slots"
    GRAPHS = "CUDA graphs"
    ACTIVATIONS = "activations"
    FREE = "free"


class MemorySize(Struct, frozen=True):
    """A size in bytes, its explanation (with numbers), and whether it is exact.

    `exact` is False for estimates, such as graphs and activations. `counted` is False for weights
    estimated from the size of their files, divided evenly among ranks.
    """

    bytes: int
    why: str
    exact: bool = True
    counted: bool = True


class MemoryShare(Struct, frozen=True):
    """One use of GPU memory, and its size."""

    use: MemoryUse
    size: MemorySize


class RankBudget(Struct, frozen=True):
    """The memory on each of several identical ranks. The shares (`FREE` included) add up to
    `memory_bytes`, or to `short_bytes` more if memory is short."""

    ranks: tuple[int, ...]
    memory_bytes: int
    shares: tuple[MemoryShare, ...]
    short_bytes: int = 0


class MemoryBudget(Struct, frozen=True):
    """The memory verdict of a deployment, the predicted failure, and the remaining capacity.

    If `fit` is UNKNOWN, `unknown` names the missing facts; values that do not depend on them are
    present. Token and request counts are per data-parallel replica, as the engine logs them
    (`max_total_num_tokens`, `max_running_requests`).
    """

    fit: Fit
    why: str
    phase: MemoryPhase | None = None
    """Phase in which the start fails; None if the start succeeds or its outcome is unknown."""
    message: str | None = None
    """Error message that this engine version prints; None if the start succeeds or its outcome is
    unknown."""
    ranks: tuple[RankBudget, ...] = ()
    target_kv: MemorySize | None = None
    """Bytes of the target's KV cache per token; None if unknown."""
    draft_kv: MemorySize | None = None
    tokens: int | None = None
    """Capacity of the KV cache in tokens; None if unknown."""
    running_requests: int | None = None
    """`max_running_requests` after the engine has limited it to the pool; None if unknown."""
    context_length: int | None = None
    requests_at_context: int | None = None
    """Number of requests of full context length that fit at the same time; None if unknown."""
    mem_fraction_static: float | None = None
    working_fractions: tuple[float, float] | None = None
    """Smallest and largest working `mem_fraction_static`, to 0.001; None if none works or the
    range is unknown."""
    likely_fractions: tuple[float, float] | None = None
    """Smallest and largest fraction with the verdict FITS; None if no fraction has it or the range
    is unknown."""
    impossible: bool = False
    """True if the weights alone, at their minimum, exceed an empty GPU's memory. Every start then
    fails, whatever the settings."""
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Notes on user-set limits that the engine lowers, and on estimates that decide the verdict."""


class Steppable(StrEnum):
    """A setting that a fit search or recovery after a failed start may change."""

    FRACTION = "mem_fraction_static"
    GRAPHS = "cuda_graph_max_bs_decode"
    TREE = "draft_tree"
    """`speculative_num_steps`, `speculative_eagle_topk` and `speculative_num_draft_tokens`, which
    change only together."""
    RUNNING = "max_running_requests"
    CHUNK = "chunked_prefill_size"
    POOL = "max_total_tokens"


class FitFloors(Struct, frozen=True):
    """The lowest value to try for each setting."""

    mem_fraction_static: float = 0.2
    cuda_graph_max_bs_decode: int = 2
    speculative_num_steps: int = 1
    max_running_requests: int = 4
    chunked_prefill_size: int = 1024
    max_total_tokens: int = 1024


class FitLimits(Struct, frozen=True):
    """Settings that a fit search may change, and how far."""

    order: tuple[Steppable, ...] = tuple(Steppable)
    """Settings that may change, in the order of recovery. Fit searches ignore the order."""
    floors: FitFloors = FitFloors()
    most_fraction: float = 0.98
    """Largest `mem_fraction_static` to try."""
    tokens_within: float = 0.2
    """Share of the requested KV tokens that a search may give up at no cost."""


DEFAULT_LIMITS = FitLimits()
"""Limits that apply unless the recipe sets them."""
