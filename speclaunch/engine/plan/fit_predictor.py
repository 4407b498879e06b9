"""Settings that free memory, and the predicted budgets of changed settings.

Graphs and activations are estimated with the engine's own conservative rules of thumb. Therefore
`Margins` has three maximum fractions, not one.

A step maps server arguments, as the newest engine names them, to new values. Steps obey the
engine's constraints:

- A chain (topk 1) verifies one more token than it has steps.
- An explicit list of graph sizes may only shrink.
- Chunks are complete pages.
- Data-parallel ranks divide requests and chunk tokens among themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from speclaunch.engine.plan.budget import (
    Fit,
    FitFloors,
    MemoryBudget,
    MemoryUse,
    RankBudget,
    Steppable,
)
from speclaunch.engine.plan.memory.budget import budget as work_out
from speclaunch.engine.plan.memory.phases import (
    FractionOutcome,
    Terms,
    likely_range,
    start,
    working_range,
)
from speclaunch.engine.plan.memory.terms import GatheredSizes, gather
from speclaunch.engine.plan.plan import Plan, UnknownValueError
from speclaunch.engine.plan.resolution.graphs import captured_sizes
from speclaunch.engine.plan.topics.algorithms import EAGLE_FAMILY
from speclaunch.engine.plan.topics.gpu import (
    FRACTION,
    MOST,
    SIZES,
    decode_is_captured,
    draft_in_pool,
)
from speclaunch.engine.plan.topics.parallel import attention_ranks
from speclaunch.engine.plan.topics.speculation import STEPS, TOKENS, TOPK

Step = Mapping[str, Any]

_CHAIN = 3
"""Number of steps in the chain that SGLang's documentation recommends over a tree (`3 / 1 / 4`)."""
_LEAST_NGRAM_TOKENS = 4
_UNCHUNKED = 8192
"""First chunk size to try if prompts are not chunked (`chunked_prefill_size: -1`)."""


_TREE = frozenset({STEPS, TOPK, TOKENS})
_GRAPHS = frozenset({MOST, SIZES})


def arguments(knob: Steppable) -> frozenset[str]:
    """Return the server arguments that make up a setting."""
    if knob is Steppable.TREE:
        return _TREE
    return _GRAPHS if knob is Steppable.GRAPHS else frozenset({knob.value})


def steps_down(plan: Plan, knob: Steppable, floors: FitFloors) -> tuple[Step, ...]:
    """Return the changes that lower a setting, from the mildest to its floor.

    Empty if the setting has no effect, is unknown, or must not change.
    """
    makers = {
        Steppable.GRAPHS: _graphs,
        Steppable.TREE: _tree,
        Steppable.RUNNING: _running,
        Steppable.CHUNK: _chunk,
        Steppable.POOL: _pool,
    }
    try:
        return makers[knob](plan, floors) if knob in makers else ()
    except UnknownValueError:
        return ()


def halves(value: int, least: int) -> list[int]:
    """Return half of `value`, a quarter, and so on down to `least`."""
    found = []
    while value // 2 > least:
        value //= 2
        found.append(value)
    return [*found, least] if value > least else found


def graphs_can_shrink(plan: Plan) -> bool:
    """True if decode uses CUDA graphs whose sizes depend on server arguments."""
    return decode_is_captured(plan) and not plan.value("cuda_graph_config")


def _graphs(plan: Plan, floors: FitFloors) -> tuple[Step, ...]:
    if not graphs_can_shrink(plan):
        return ()
    sizes = captured_sizes(plan)
    if not sizes:
        return ()
    explicit = plan.user_value(SIZES)
    found: list[Step] = []
    for most in halves(max(sizes), floors.cuda_graph_max_bs_decode):
        if explicit is None:
            found.append({MOST: most})
            continue
        remaining = [size for size in explicit if size <= most] or [min(explicit)]
        if remaining != explicit and (not found or found[-1][SIZES] != remaining):
            found.append({SIZES: remaining})
    return tuple(found)


def _tree(plan: Plan, floors: FitFloors) -> tuple[Step, ...]:
    algorithm = plan.algorithm
    tokens = plan.value(TOKENS)
    if tokens is None:
        return ()
    if algorithm == "NGRAM":
        return tuple({TOKENS: size} for size in halves(int(tokens), _LEAST_NGRAM_TOKENS))
    if algorithm not in EAGLE_FAMILY:
        return ()  # the draft determines the block size
    steps, topk = plan.value(STEPS), plan.value(TOPK)
    tied = plan.value("speculative_adaptive") or plan.value("enable_multi_layer_eagle")
    if steps is None or topk is None or tied:
        return ()
    found: list[Step] = []
    if topk > 1:
        chain = min(_CHAIN, steps)
        for size in halves(int(tokens), chain + 1)[:-1]:
            if size > steps:
                found.append({STEPS: steps, TOPK: topk, TOKENS: size})
        found.append(_chain(max(chain, floors.speculative_num_steps)))
        steps = chain
    elif steps > _CHAIN:
        found.append(_chain(max(_CHAIN, floors.speculative_num_steps)))
    if floors.speculative_num_steps < min(steps, _CHAIN):
        found.append(_chain(floors.speculative_num_steps))
    return tuple(found)


def _chain(steps: int) -> Step:
    return {STEPS: steps, TOPK: 1, TOKENS: steps + 1}


def _running(plan: Plan, floors: FitFloors) -> tuple[Step, ...]:
    running = plan.value("max_running_requests")
    if running is None:
        return ()
    ranks = max(1, attention_ranks(plan))
    least = max(floors.max_running_requests, ranks)
    return tuple({"max_running_requests": number} for number in halves(int(running), least))


def _chunk(plan: Plan, floors: FitFloors) -> tuple[Step, ...]:
    name = "chunked_prefill_size"
    chunk = plan.value(name)
    if chunk is None:
        return ()
    page = int(plan.value("page_size") or 1)
    ranks = max(1, attention_ranks(plan))  # the engine divides the chunk among them
    total = int(chunk) if int(chunk) > 0 else 2 * _UNCHUNKED
    sizes = halves(total, floors.chunked_prefill_size)
    return tuple({name: size * ranks} for size in sizes if size % page == 0)


def _pool(plan: Plan, floors: FitFloors) -> tuple[Step, ...]:
    """Return lower pool limits if the user set `max_total_tokens`; speclaunch never adds it."""
    name = "max_total_tokens"
    total = plan.user_value(name)
    if total is None:
        return ()
    context = int(plan.value("context_length") or floors.max_total_tokens)
    least = max(floors.max_total_tokens, min(context, int(total)))
    page = int(plan.value("page_size") or 1)
    return tuple({name: size} for size in halves(int(total), least) if size % page == 0)


SAFE = 1.25
"""Multiple of the engine's reserve (graphs, activations) that a `certain` fraction leaves free."""


class Choice(Struct, frozen=True):
    """A value of `mem_fraction_static` and its outcome on one data-parallel replica."""

    fraction: float
    tokens: int
    """Capacity of the KV cache in tokens."""
    running_requests: int
    requests_at_context: int | None
    """Number of requests of full context length that fit at the same time; None if unknown."""
    spare_bytes: int
    """Free bytes on a GPU if every estimate is at its minimum."""


class Margins(Struct, frozen=True):
    """The largest working values of `mem_fraction_static`; `certain` and `likely` may be None.

    - `certain`: the engine's own reserve (a rule of thumb) remains free, with a margin (`SAFE`).
    - `likely`: the expected share of that reserve remains free (`EXPECTED`).
    - `edge`: only the minimum estimate remains free. Larger fractions fail.
    """

    least: float
    """The smallest fraction that leaves room for a KV cache."""
    certain: Choice | None
    likely: Choice | None
    edge: Choice

    @property
    def best(self) -> Choice:
        return self.likely or self.edge

    @property
    def summary(self) -> str:
        sure = "is likely to work" if self.likely is not None else "works only in the best case"
        certain = "none" if self.certain is None else f"{self.certain.fraction:.3f}"
        return (
            f"{self.best.fraction:.3f} {sure}, with {self.best.tokens:,} KV tokens (certain: "
            f"{certain}, best case: {self.edge.fraction:.3f})"
        )


def margins(plan: Plan) -> Margins | None:
    """Return the working fractions of a plan, ignoring its own fraction.

    None if a fact is missing or no fraction works.
    """
    found = gather(plan)
    terms = found.terms
    if terms is None or len(found.unknown) > (found.fraction is None):
        return None
    edge = working_range(lambda fraction: start(plan, terms, fraction).turn)
    if edge is None:
        return None

    def choice(at: tuple[float, float] | None) -> Choice | None:
        return None if at is None else _choice(plan, terms, found, min(at[1], edge[1]))

    last = choice(edge)
    return (
        None
        if last is None
        else Margins(
            edge[0],
            choice(likely_range(plan, terms, SAFE)),
            choice(likely_range(plan, terms)),
            last,
        )
    )


def _choice(plan: Plan, terms: Terms, found: GatheredSizes, fraction: float) -> Choice | None:
    outcome: FractionOutcome = start(plan, terms, fraction)
    pool = outcome.likely.pool
    if pool is None:
        return None
    context = found.context
    at_context = None if not context else min(pool.tokens // context, pool.running)
    spare = max(0, outcome.best.free) if MemoryUse.ACTIVATIONS in outcome.best.taken else 0
    return Choice(fraction, pool.tokens, pool.running, at_context, spare)


PlanWith = Callable[[Mapping[str, Any]], Plan]
"""Function that returns the deployment's plan with changed arguments. Keys are argument names of
the newest engine. A value of None means the engine's default."""
BudgetOf = Callable[[Plan], MemoryBudget]

_GUESSED = frozenset({MemoryUse.GRAPHS, MemoryUse.ACTIVATIONS})
_BEFORE = frozenset({MemoryUse.OTHERS, MemoryUse.RUNTIME})
"""Memory uses that precede the engine's first measurement."""
_PROBE, _MOST_PROBED = 0.02, 0.99
_LEAST_ESTIMATE = 0.02
"""Minimum estimate of graphs and activations, as a share of the initially free memory."""


class Bounds(Struct, frozen=True):
    """The `mem_fraction_static` range in which a configuration works; empty if `low` > `high`."""

    low: float
    high: float

    @property
    def width(self) -> float:
        return self.high - self.low


def key(changes: Mapping[str, Any]) -> str:
    """Return a cache key for changes, independent of their order."""
    return repr(sorted((name, repr(value)) for name, value in changes.items()))


class Predictor:
    """Plans and budgets of a deployment with changed settings, cached."""

    def __init__(self, plan_with: PlanWith, budget_of: BudgetOf = work_out) -> None:
        self._plan_with = plan_with
        self._budget_of = budget_of
        self._plans: dict[str, Plan] = {}
        self._budgets: dict[str, MemoryBudget] = {}

    def plan(self, changes: Mapping[str, Any]) -> Plan:
        name = key(changes)
        if name not in self._plans:
            self._plans[name] = self._plan_with(changes)
        return self._plans[name]

    def budget(self, changes: Mapping[str, Any]) -> MemoryBudget:
        name = key(changes)
        if name not in self._budgets:
            self._budgets[name] = self._budget_of(self.plan(changes))
        return self._budgets[name]

    def bounds(self, changes: Mapping[str, Any]) -> Bounds | None:
        """Return the range of fractions likely to work, whatever the fraction in `changes`.

        None if the budget is unknown. If no fraction works, `low` exceeds `high` by the missing
        share.

        `MemoryBudget.working_fractions` includes every fraction that is not certain to fail. The
        upper end is therefore computed from the budget's free memory and likely sizes.
        """
        budget = self.budget(changes)
        working = budget.working_fractions
        if working is None:
            return None if budget.fit is Fit.UNKNOWN else self._disjoint_bounds(changes, budget)
        likely = self._likely_end(changes, working)
        return Bounds(working[0], working[1] if likely is None else min(working[1], likely))

    def likely(self, changes: Mapping[str, Any]) -> Bounds | None:
        """Return the range of fractions with the verdict FITS; None if it is empty or unknown."""
        return _bounds(self.budget(changes).likely_fractions)

    def working(self, changes: Mapping[str, Any]) -> Bounds | None:
        """Return the range of fractions with the verdict FITS or TIGHT; None if it is empty or
        unknown."""
        return _bounds(self.budget(changes).working_fractions)

    def _likely_end(self, changes: Mapping[str, Any], working: tuple[float, float]) -> float | None:
        """Return the fraction that leaves no memory free with likely sizes; None if unknown."""
        at = self.budget(with_fraction(changes, working[0]))
        start, rank = memory_at_start(at), tightest(at)
        if start is None or rank is None:
            return None
        left = _sum(rank, {MemoryUse.FREE}) - rank.short_bytes
        grows = 1.0  # bytes used for each byte of the static part
        target, draft = at.target_kv, at.draft_kv
        if target is not None and draft is not None and not draft_in_pool(self.plan(changes)):
            grows += draft.bytes / max(1, target.bytes)
        return round(working[0] + left / start / grows, 4)

    def _disjoint_bounds(self, changes: Mapping[str, Any], budget: MemoryBudget) -> Bounds | None:
        """Return bounds for changes without a working fraction, with `low` above `high`; None if
        unknown. Assumes the smallest pool."""
        start = memory_at_start(budget)
        if start is None:
            return None
        charged = draft_in_pool(self.plan(changes))
        weights = {MemoryUse.TARGET_WEIGHTS, MemoryUse.STATE, MemoryUse.REQUEST_SLOTS}
        static = weights | ({MemoryUse.DRAFT_WEIGHTS} if charged else set())
        rest = _GUESSED | (set() if charged else {MemoryUse.DRAFT_WEIGHTS})
        low = _sum(tightest(budget), static) / start
        if low >= _MOST_PROBED:
            return Bounds(round(low, 4), round(low - _LEAST_ESTIMATE, 4))
        beyond = self._beyond_the_pool(changes, budget, low)
        return Bounds(round(low, 4), round(1 - _sum(tightest(beyond), rest) / start, 4))

    def _beyond_the_pool(
        self, changes: Mapping[str, Any], budget: MemoryBudget, low: float
    ) -> MemoryBudget:
        """Return the budget with graphs and activations, at a fraction just above `low`.

        Needed because the budget of a failed start ends at the failing phase.
        """
        if any(share.use in _GUESSED for rank in budget.ranks for share in rank.shares):
            return budget
        return self.budget(with_fraction(changes, round(min(_MOST_PROBED, low + _PROBE), 3)))

    def estimated(self, changes: Mapping[str, Any]) -> float:
        """Return the estimated share of graphs and activations in the initially free memory."""
        working = self.budget(changes).working_fractions
        if working is None:
            bounds = self.bounds(changes)
            low = bounds.low if bounds is not None else 0.0
            budget = self._beyond_the_pool(changes, self.budget(changes), low)
        else:
            budget = self.budget(with_fraction(changes, working[0]))
        start = memory_at_start(budget)
        if start is None:
            return _LEAST_ESTIMATE
        return max(_LEAST_ESTIMATE, _sum(tightest(budget), _GUESSED) / start)


def _bounds(ends: tuple[float, float] | None) -> Bounds | None:
    return None if ends is None else Bounds(*ends)


def tightest(budget: MemoryBudget) -> RankBudget | None:
    """Return the rank with the least free memory; None if no rank is known."""
    if not budget.ranks:
        return None
    return min(budget.ranks, key=lambda rank: _sum(rank, {MemoryUse.FREE}) - rank.short_bytes)


def memory_at_start(budget: MemoryBudget) -> int | None:
    """Return the free bytes at the engine's first measurement, of which `mem_fraction_static` is a
    share; None if unknown."""
    rank = tightest(budget)
    if rank is None:
        return None
    free = rank.memory_bytes - _sum(rank, _BEFORE)
    return free if free > 0 else None


def _sum(rank: RankBudget | None, uses: frozenset[MemoryUse] | set[MemoryUse]) -> int:
    return sum(s.size.bytes for s in rank.shares if s.use in uses) if rank is not None else 0


def shares(budget: MemoryBudget, *uses: MemoryUse) -> float:
    """Return the share of the initially free memory that `uses` take; 0 if unknown."""
    start = memory_at_start(budget)
    return 0.0 if start is None else _sum(tightest(budget), set(uses)) / start


def with_fraction(changes: Mapping[str, Any], fraction: float) -> dict[str, Any]:
    """Return `changes` with `mem_fraction_static` set to `fraction`."""
    return {**changes, FRACTION: fraction}
