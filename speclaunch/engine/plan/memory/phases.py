"""Simulates the engine's start phase by phase, to predict the working range of
`mem_fraction_static` and the message of a failure.

`topics/gpu.py` decides whether the draft is loaded before or after the pool.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.engine.plan.budget import MemoryPhase, MemoryUse
from speclaunch.engine.plan.memory.estimates import GIB, MIB, NOTHING, Device, SizeEstimate
from speclaunch.engine.plan.memory.pool import Pool, PoolSettings, pool
from speclaunch.engine.plan.plan import Plan
from speclaunch.engine.plan.topics.attention import NEEDS_A_STATE

_TORCH = "torch.OutOfMemoryError: CUDA out of memory."
"""Start of PyTorch's out-of-memory message, up to the sizes. All known releases require PyTorch 2.5
or later, which prints it."""
_HOST = "DefaultCPUAllocator: can't allocate memory"


def allocation_message(plan: Plan) -> str:
    """Return the engine's message for a failed allocation, on a GPU or on a CPU host."""
    return _HOST if plan.device.startswith("cpu") else _TORCH


def _no_tokens(plan: Plan, fraction: float) -> str:
    """Return the engine's message for a KV cache smaller than one page. See 0.5.23
    pool_configurator.py:96, 0.5.10 model_runner_kv_cache_mixin.py:57, 0.5.3 model_runner.py:1660,
    0.4.6 model_runner.py:899."""
    text = "Not enough memory. Please try to increase --mem-fraction-static."
    if plan.in_versions(">=0.5.10"):
        return f"{text} Current value: mem_fraction_static={fraction}"
    if plan.in_versions(">=0.5.3"):
        return f"{text} Current value: self.server_args.mem_fraction_static={fraction}"
    return text


def _nothing_left(fraction: float, before: int, after: int) -> str:
    """Return the engine's message for weights that alone fill the static share (0.5.14 and
    later; 0.5.23 kv_cache_configurator.py:3051). `before`, `after`: free bytes before and after
    loading."""
    least = 1 - after / before
    return (
        f"Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static="
        f"{fraction}. Raise --mem-fraction-static above {math.ceil(least * 1000) / 1000:.3f} "
        f"(minimum viable = 1 - available/pre = {least:.4f}). If using speculative decoding, "
        "draft weights are now counted."
    )


def _no_states(slots: int, rest: float, each: int) -> str:
    """Return the engine's message if no linear-attention state fits (0.5.13 and later; 0.5.23
    kv_cache_configurator.py:3394). `rest` is in GiB."""
    return (
        "Not enough GPU memory for hybrid (mamba/linear-attention) state cache. Computed "
        f"max_mamba_cache_size={slots} (total_rest_memory={rest:.2f} GB, "
        f"mamba_cache_per_req={each / (1 << 20):.2f} MB). Try: (1) reduce --max-running-requests, "
        "(2) increase --mem-fraction-static, (3) reduce --speculative-num-draft-tokens, or "
        "(4) use GPUs with more memory."
    )


def _too_few_states(slots: int, ratio: int, requests: int) -> str:
    """Return the engine's message for too few states to serve one request (0.5.13 and later; 0.5.23
    kv_cache_configurator.py:3154)."""
    return (
        "Hybrid (mamba/linear-attention) state cache is too small to serve any requests. "
        f"max_mamba_cache_size={slots}, mamba_ratio={ratio}, resulting max_num_reqs={requests}. "
        "Try: (1) reduce --max-running-requests, (2) increase --mem-fraction-static, or "
        "(3) use GPUs with more memory."
    )


def _small_window(tokens: int, window: int, page: int) -> str:
    """Return the engine's message for a sliding-window pool that never admits a request (0.5.16 and
    later; 0.5.23 pool_configurator.py:212)."""
    return (
        f"SWA pool ({tokens} tokens) cannot hold even one request: the prefill admission floor is "
        f"sliding_window_size ({window}) + page_size ({page}). Increase --swa-full-tokens-ratio "
        "or the total KV budget."
    )


def capture_message(plan: Plan) -> str:
    """Return the engine's message for graphs that do not fit. 0.4.6 capitalizes CUDA
    (cuda_graph_runner.py)."""
    name = "CUDA" if plan.in_versions("<0.4.7") else "cuda"
    return f"Capture {name} graph failed: CUDA out of memory."


def unbalanced_message(local: int, least: int) -> str:
    """Return the engine's message for a rank with much less free memory than another (0.5.23
    distributed/bootstrap.py:445)."""
    gib = float(1 << 30)
    return (
        "The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
        f"pre_model_load_memory={least / gib}, local_gpu_memory={local / gib}, "
        f"local_gpu_memory * 0.9={local / gib * 0.9}"
    )


EXPECTED = 0.75
"""Share of the engine's own reserve that graphs and activations are expected to use."""

WARM_UP_TOKENS = (3, 30)
"""Minimum and maximum token count of the engine's warm-up prompt, "The capital city of France is".
The maximum assumes one token per character (0.5.23 entrypoints/http_server.py:2455)."""
_NO_INPUT = 6
"""Number of pool tokens that no prompt can use (0.5.23 managers/tp_worker.py:568, 0.4.6
tp_worker.py:144)."""

INDEX_BYTES = 80
"""Bytes of host memory that a serving CPU engine uses per pool token, in addition to the KV cache.
Inputs of the eager runner, which is sized for all tokens, take 48 bytes (0.5.15 to 0.5.23
model_executor/runner/eager_runner.py: `prefill_ceiling`). The list of free slots and its copy take
16 bytes (mem_cache/allocator/token.py:59). Page tables take the remaining bytes. Measured: 73
bytes, with EAGLE3 and 3,966,095 tokens."""

HOST_LOSS = 256 * MIB
"""Bytes of host memory, in addition to the weights, that may become unavailable while a CPU engine
loads weights. This loss reduces the pool's budget: the memory available after loading, minus a
share of the memory available before (0.5.23 kv_cache_configurator.py:3007). Measured: up to 80 MiB
on a quiet host, and more on a busy host."""


class FractionDirection(StrEnum):
    """The change of `mem_fraction_static` that avoids a failure."""

    RAISE = "raise"
    LOWER = "lower"
    NEITHER = "neither"


class Terms(Struct, frozen=True):
    """All sizes that determine how one rank starts with a fraction."""

    device: Device
    target_weights: SizeEstimate
    draft_weights: SizeEstimate
    corpus: SizeEstimate
    """Size of NGRAM's corpus in the engine's memory on a CPU; zero on GPUs."""
    reserved: int
    """Bytes subtracted from the pool's budget for images (0.5.18 and later) and, on a CPU, for
    `HOST_LOSS`."""
    pool: PoolSettings
    target_graphs: SizeEstimate
    draft_graphs: SizeEstimate
    activations: SizeEstimate
    draft_first: bool
    """True if the draft's weights are loaded before the pool is sized."""
    freed_after_pool: int = 0
    """Additional bytes that the draft holds until the pool is allocated."""
    target_prefill: SizeEstimate = NOTHING
    draft_prefill: SizeEstimate = NOTHING
    """Size of the draft's prefill graphs; zero if it was not measured."""
    prefill_needs: int = 0
    """Free bytes below which the engine skips prefill graphs."""
    index_token: int = 0
    """Bytes that serving needs for each token of the pool, in addition to `activations`."""
    eager_prefill: int = 0
    """Bytes of `activations` that move into prefill graphs once these are captured."""

    @property
    def graphs(self) -> tuple[SizeEstimate, ...]:
        """Sizes of all graphs, in the order of capture."""
        return self.target_prefill, self.target_graphs, self.draft_prefill, self.draft_graphs


class PredictedFailure(Struct, frozen=True):
    """The phase in which a start fails, and the engine's message."""

    phase: MemoryPhase
    turn: FractionDirection
    message: str
    what: str
    """Memory use that does not fit."""
    short: int
    """Minimum number of missing bytes; 0 if only the token count is too small."""


class PhaseRun(Struct):
    """One simulated start, with likely or minimal estimates."""

    free: int
    least: bool
    taken: dict[MemoryUse, int] = {}
    failure: PredictedFailure | None = None
    pool: Pool | None = None
    skips_prefill_graphs: bool = False

    def take(
        self,
        use: MemoryUse,
        size: SizeEstimate,
        phase: MemoryPhase,
        turn: FractionDirection,
        message: str,
    ) -> None:
        if self.failure is not None:
            return
        needed = size.least if self.least else size.size.bytes
        self.taken[use] = self.taken.get(use, 0) + needed
        self.free -= needed
        if self.free < 0:
            self.failure = PredictedFailure(phase, turn, message, use.value, -self.free)

    def hold(self, size: int, phase: MemoryPhase, message: str) -> None:
        """Subtract a size that is freed later; record a failure if too little is free."""
        if self.failure is None:
            self.free -= size
            if self.free < 0:
                neither, what = FractionDirection.NEITHER, MemoryUse.DRAFT_WEIGHTS.value
                self.failure = PredictedFailure(phase, neither, message, what, -self.free)


class FractionOutcome(Struct, frozen=True):
    """The likely and the best-case outcome of a start with one fraction."""

    likely: PhaseRun
    best: PhaseRun

    @property
    def turn(self) -> FractionDirection | None:
        """The required change of the fraction; None if it works.

        Weights and pool must fit with likely sizes, graphs and activations with minimum sizes.
        """
        found = self.likely.failure
        if found is not None and found.turn is not FractionDirection.LOWER:
            return found.turn
        return None if self.best.failure is None else self.best.failure.turn


def start(plan: Plan, terms: Terms, fraction: float) -> FractionOutcome:
    """Return the likely and the best-case outcome of a start with `fraction`."""
    return FractionOutcome(run(plan, terms, fraction), run(plan, terms, fraction, least=True))


def expected(plan: Plan, terms: Terms, fraction: float) -> PhaseRun:
    """Simulate a start with the expected sizes of graphs and activations."""
    return run(plan, _bounded(plan, terms), fraction)


def _bounded(plan: Plan, terms: Terms, share: float | None = None) -> Terms:
    """Return the terms with estimates scaled to `share` (None: the expected share).

    On a CPU the expected share is 0, because the engine's reserve and rules of thumb are for GPUs.
    Instead, `HOST_LOSS` and the growth of the engine's processes are counted.
    """
    if not plan.device.startswith("cpu"):
        return scaled(terms, EXPECTED if share is None else share)
    part = scaled(terms, share or 0.0)
    growth = terms.device.runtime.size.bytes + HOST_LOSS
    size = replace(terms.activations.size, bytes=max(growth, part.activations.size.bytes))
    return replace(
        part,
        reserved=part.reserved + HOST_LOSS,
        activations=replace(part.activations, size=size),
        index_token=INDEX_BYTES,
    )


def scaled(terms: Terms, share: float) -> Terms:
    """Return the terms with graphs and activations scaled to a share of their estimates."""

    def part(estimate: SizeEstimate) -> SizeEstimate:
        size = max(estimate.least, int(estimate.size.bytes * share))
        return replace(estimate, size=replace(estimate.size, bytes=size))

    return replace(
        terms,
        target_graphs=part(terms.target_graphs),
        draft_graphs=part(terms.draft_graphs),
        target_prefill=part(terms.target_prefill),
        draft_prefill=part(terms.draft_prefill),
        activations=part(terms.activations),
    )


def direction(course: PhaseRun) -> FractionDirection | None:
    """Return the required change of the fraction; None if the start succeeds."""
    return None if course.failure is None else course.failure.turn


def run(plan: Plan, terms: Terms, fraction: float, *, least: bool = False) -> PhaseRun:
    """Simulate one start. `least`: use the minimum of every estimate."""
    before = terms.device.most_free if least else terms.device.free
    course = PhaseRun(before, least)
    full = allocation_message(plan)
    course.take(
        MemoryUse.TARGET_WEIGHTS,
        terms.target_weights,
        MemoryPhase.TARGET_WEIGHTS,
        FractionDirection.NEITHER,
        full,
    )
    if terms.draft_first:
        phase = MemoryPhase.DRAFT_WEIGHTS
        course.take(
            MemoryUse.DRAFT_WEIGHTS, terms.draft_weights, phase, FractionDirection.NEITHER, full
        )
        course.hold(terms.freed_after_pool, phase, full)
    course.take(
        MemoryUse.RUNTIME, terms.corpus, MemoryPhase.DRAFT_WEIGHTS, FractionDirection.NEITHER, full
    )
    if course.failure is not None:
        return course
    _allocate(plan, terms, fraction, before, course)
    graphs = capture_message(plan)
    if terms.draft_first:
        _draft_pool(course, full)
        course.free += terms.freed_after_pool
    held = _capture(course, terms, terms.target_prefill, terms.target_graphs, graphs)
    if not terms.draft_first:
        phase = MemoryPhase.DRAFT_WEIGHTS
        course.take(
            MemoryUse.DRAFT_WEIGHTS, terms.draft_weights, phase, FractionDirection.LOWER, full
        )
        _draft_pool(course, full)
    eager = terms.eager_prefill if held else 0
    held += _capture(course, terms, terms.draft_prefill, terms.draft_graphs, graphs)
    size, lowest = terms.activations.size, max(0, terms.activations.least - eager)
    index = terms.index_token * (0 if course.pool is None else course.pool.tokens)
    rest = SizeEstimate(replace(size, bytes=max(lowest, size.bytes - held) + index), lowest)
    course.take(MemoryUse.ACTIVATIONS, rest, MemoryPhase.SERVING, FractionDirection.LOWER, full)
    # sglang 0.5.23 entrypoints/http_server.py:2589 sends no prompt with skip_server_warmup
    warms_up = not plan.value_or_none("skip_server_warmup")
    if course.failure is None and course.pool is not None and warms_up:
        course.failure = _too_short(terms, course.pool, WARM_UP_TOKENS[0 if least else 1])
    return course


def _capture(
    course: PhaseRun, terms: Terms, prefill: SizeEstimate, decode: SizeEstimate, message: str
) -> int:
    """Simulate graph capture for one model; return the bytes of its prefill graphs."""
    use, phase, turn = MemoryUse.GRAPHS, MemoryPhase.GRAPHS, FractionDirection.LOWER
    before = course.free
    if prefill.size.bytes and before < terms.prefill_needs:
        course.skips_prefill_graphs = True
    else:
        course.take(use, prefill, phase, turn, message)
    held = before - course.free
    course.take(use, decode, phase, turn, message)
    return held


def _allocate(plan: Plan, terms: Terms, fraction: float, before: int, course: PhaseRun) -> None:
    """Simulate sizing the pool and allocating its buffers, except the draft's."""
    rest = course.free - before * (1 - fraction) - terms.reserved
    found = pool(terms.pool, rest)
    course.failure = _refusal(plan, terms, fraction, before, course.free, rest, found)
    if course.failure is not None:
        return
    course.pool = found
    for use, size in (
        (MemoryUse.STATE, found.states.bytes),
        (MemoryUse.TARGET_KV, found.target_bytes),
        (MemoryUse.REQUEST_SLOTS, found.slot_bytes),
    ):
        _pool_memory(course, use, size, allocation_message(plan))


def _draft_pool(course: PhaseRun, message: str) -> None:
    if course.pool is not None and course.failure is None:
        _pool_memory(course, MemoryUse.DRAFT_KV, course.pool.draft_bytes, message)


def _pool_memory(course: PhaseRun, use: MemoryUse, size: int, message: str) -> None:
    if course.failure is None and size:
        course.taken[use] = size
        course.free -= size
        if course.free < 0:
            phase = MemoryPhase.KV_POOL
            course.failure = PredictedFailure(
                phase, FractionDirection.LOWER, message, use.value, -course.free
            )


def _refusal(
    plan: Plan,
    terms: Terms,
    fraction: float,
    before: int,
    after: int,
    rest: float,
    found: Pool,
) -> PredictedFailure | None:
    """Return the first failure that the engine reports for pool `found`."""
    text = None
    settings, states = terms.pool, found.states
    new = plan.in_versions(NEEDS_A_STATE)
    if settings.states is not None and states.slots <= 0 and new:
        text = _no_states(states.slots, rest / GIB, settings.states.each)
    elif terms.draft_first and rest - states.bytes <= 0:
        text = _nothing_left(fraction, before, after)
    elif found.tokens <= 0:
        text = _no_tokens(plan, fraction)
    elif (
        settings.window is not None
        and found.window_tokens
        and settings.window + settings.page >= found.window_tokens
    ):
        text = _small_window(found.window_tokens, settings.window, settings.page)
    if text is None and found.running <= 0:
        text = "AssertionError: max_running_request is zero"  # 0.5.23 tp_worker.py:420, 0.4.6 :128
        if settings.states is not None and new:
            text = _too_few_states(states.slots, states.ratio, found.running)
    if text is None:
        return None
    short = max(0, int(settings.cell * settings.page + states.bytes - rest))
    return PredictedFailure(
        MemoryPhase.KV_POOL, FractionDirection.RAISE, text, "the KV cache", short
    )


def _too_short(terms: Terms, found: Pool, prompt: int) -> PredictedFailure | None:
    """Return the failure if the warm-up prompt exceeds the pool."""
    longest = found.tokens - _NO_INPUT
    if prompt < longest:
        return None
    is_limited = terms.pool.most is not None and terms.pool.most <= found.profiled
    turn = FractionDirection.NEITHER if is_limited else FractionDirection.RAISE
    what = f"the warm-up prompt in {found.tokens:,} tokens of KV cache"
    # 0.5.23 managers/utils.py:284, 0.4.6 managers/utils.py:52
    message = f"exceeds the maximum allowed length ({longest} tokens)"
    return PredictedFailure(MemoryPhase.SERVING, turn, message, what, 0)


_STEPS = 1000


def working_range(turn: Callable[[float], FractionDirection | None]) -> tuple[float, float] | None:
    """Return the smallest and the largest working fraction, to 0.001; None if none works.

    `turn` returns the change that a fraction requires, or None. A larger fraction never shrinks the
    pool and never leaves more memory outside it, so bisection finds both ends.
    """
    least = _first(lambda step: turn(step / _STEPS) is not FractionDirection.RAISE)
    if least is None or turn(least / _STEPS) is not None:
        return None
    beyond = _first(lambda step: turn(step / _STEPS) is not None, least)
    return least / _STEPS, ((_STEPS if beyond is None else beyond) - 1) / _STEPS


def likely_range(
    plan: Plan, terms: Terms, share: float | None = None
) -> tuple[float, float] | None:
    """Return `working_range` with estimates scaled to `share` (None: the expected share)."""
    part = _bounded(plan, terms, share)
    return working_range(lambda tried: direction(run(plan, part, tried)))


def _first(holds: Callable[[int], bool], after: int = 0) -> int | None:
    """Return the first of the steps `after` + 1 to 999 that meets the condition; None if none does.

    Once the condition holds, it must hold for all later steps.
    """
    low, high = after + 1, _STEPS
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low if low < _STEPS else None
