"""What the budget predicts for changed settings, each asked for once; and which
`mem_fraction_static` is certain to work, which is likely to, and where it ends.

Graphs and activations are estimates: by the engine's own rules of thumb, which mean to be on the
safe side. So there is no one largest fraction that works, but three.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from speclaunch.engine.plan.budget import Fit, MemoryBudget, MemoryUse, RankBudget
from speclaunch.engine.plan.fit.knobs import FRACTION
from speclaunch.engine.plan.memory.budget import budget as work_out
from speclaunch.engine.plan.memory.phases import (
    FractionOutcome,
    Terms,
    likely_range,
    start,
    working_range,
)
from speclaunch.engine.plan.memory.terms import GatheredSizes, gather
from speclaunch.engine.plan.plan import Plan
from speclaunch.engine.plan.topics.memory import draft_in_pool

SAFE = 1.25
"""Of what the engine puts aside for graphs and activations: so much is left free to be certain."""


class Choice(Struct, frozen=True):
    """One `mem_fraction_static` and what it gives, of one data-parallel replica."""

    fraction: float
    tokens: int
    """Tokens of KV cache."""
    running_requests: int
    requests_at_context: int | None
    """Requests of the whole context that have room at the same time."""
    spare_bytes: int
    """What is left on a GPU where every estimate turns out at its least: the margin."""


class Margins(Struct, frozen=True):
    """The largest fractions at which the deployment serves. None: there is no such fraction.

    - `certain`: what the engine puts aside by its rules of thumb is there, and more (`SAFE`).
    - `likely`: what is expected of it is there (`EXPECTED`).
    - `edge`: only the least that it can be; above it, it fails.
    """

    least: float
    """The smallest fraction that leaves a KV cache at all."""
    certain: Choice | None
    likely: Choice | None
    edge: Choice

    @property
    def best(self) -> Choice:
        """The one to take: the likely one, else the edge."""
        return self.likely or self.edge

    @property
    def said(self) -> str:
        """The one to take, and the others, in a few words."""
        sure = "is likely to work" if self.likely is not None else "is at the edge"
        certain = "none" if self.certain is None else f"{self.certain.fraction:.3f}"
        return (
            f"{self.best.fraction:.3f} {sure}, with {self.best.tokens:,} KV tokens (certain: "
            f"{certain}, the edge: {self.edge.fraction:.3f})"
        )


def margins(plan: Plan) -> Margins | None:
    """The margins of a plan, whatever fraction it has; None where a fact is missing, or there is no
    fraction that works."""
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
    whole = None if not context else min(pool.tokens // context, pool.running)
    spare = max(0, outcome.best.free) if MemoryUse.ACTIVATIONS in outcome.best.taken else 0
    return Choice(fraction, pool.tokens, pool.running, whole, spare)


PlanWith = Callable[[Mapping[str, Any]], Plan]
"""Resolves the deployment with arguments changed, by the newest engine's names. None leaves an
argument to the engine."""
BudgetOf = Callable[[Plan], MemoryBudget]

_GUESSED = frozenset({MemoryUse.GRAPHS, MemoryUse.ACTIVATIONS})
_BEFORE = frozenset({MemoryUse.OTHERS, MemoryUse.RUNTIME})
"""What is taken before the engine measures the memory that it divides."""
_PROBE, _MOST_PROBED = 0.02, 0.99
_LEAST_ESTIMATE = 0.02
"""Of the memory: no estimate is better than that."""


class Bounds(Struct, frozen=True):
    """The fractions between which a configuration works; none do where `low` is above `high`."""

    low: float
    high: float

    @property
    def width(self) -> float:
        """How much room there is; negative where there is none."""
        return self.high - self.low


def key(changes: Mapping[str, Any]) -> str:
    """The same text for the same changes, in whatever order."""
    return repr(sorted((name, repr(value)) for name, value in changes.items()))


class Predictor:
    """Plans and budgets of changed settings, kept."""

    def __init__(self, plan_with: PlanWith, budget_of: BudgetOf = work_out) -> None:
        self._plan_with = plan_with
        self._budget_of = budget_of
        self._plans: dict[str, Plan] = {}
        self._budgets: dict[str, MemoryBudget] = {}

    def plan(self, changes: Mapping[str, Any]) -> Plan:
        """The deployment with these changes."""
        name = key(changes)
        if name not in self._plans:
            self._plans[name] = self._plan_with(changes)
        return self._plans[name]

    def budget(self, changes: Mapping[str, Any]) -> MemoryBudget:
        """Its memory."""
        name = key(changes)
        if name not in self._budgets:
            self._budgets[name] = self._budget_of(self.plan(changes))
        return self._budgets[name]

    def bounds(self, changes: Mapping[str, Any]) -> Bounds | None:
        """The fractions that are likely to work for these changes, whatever fraction is among
        them; None where the budget is not known.

        `Budget.working_fractions` counts as working what is not certain to fail. Its upper end is
        therefore taken from what the shares of the budget leave free, which are the likely sizes.
        `low` is above `high` by as much as is missing.
        """
        budget = self.budget(changes)
        working = budget.working_fractions
        if working is None:
            return None if budget.fit is Fit.UNKNOWN else self._apart(changes, budget)
        likely = self._likely_end(changes, working)
        return Bounds(working[0], working[1] if likely is None else min(working[1], likely))

    def likely(self, changes: Mapping[str, Any]) -> Bounds | None:
        """Return the fractions with which these changes fit; None if there are none."""
        return _bounds(self.budget(changes).likely_fractions)

    def working(self, changes: Mapping[str, Any]) -> Bounds | None:
        """Return the fractions with which these changes fit or are tight; None without one."""
        return _bounds(self.budget(changes).working_fractions)

    def _likely_end(self, changes: Mapping[str, Any], working: tuple[float, float]) -> float | None:
        """The fraction at which nothing is left free."""
        at = self.budget(with_fraction(changes, working[0]))
        start, rank = memory_at_start(at), tightest(at)
        if start is None or rank is None:
            return None
        left = _sum(rank, {MemoryUse.FREE}) - rank.short_bytes
        grows = 1.0  # bytes that go for each byte of the static part
        target, draft = at.target_kv, at.draft_kv
        if target is not None and draft is not None and not draft_in_pool(self.plan(changes)):
            grows += draft.bytes / max(1, target.bytes)
        return round(working[0] + left / start / grows, 4)

    def _apart(self, changes: Mapping[str, Any], budget: MemoryBudget) -> Bounds | None:
        """Where no fraction works: what each side asks for, with the smallest pool."""
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
        """A budget ends where it fails: so it is asked at a fraction that leaves a small pool."""
        if any(share.use in _GUESSED for rank in budget.ranks for share in rank.shares):
            return budget
        return self.budget(with_fraction(changes, round(min(_MOST_PROBED, low + _PROBE), 3)))

    def estimated(self, changes: Mapping[str, Any]) -> float:
        """The part of the memory, as a fraction, that is only estimated (graphs, activations)."""
        working = self.budget(changes).working_fractions
        if working is None:
            bounds = self.bounds(changes)
            low = bounds.low if bounds is not None else 0.0
            budget = self._beyond_the_pool(changes, self.budget(changes), low)
        else:  # where there is room for all that is likely
            budget = self.budget(with_fraction(changes, working[0]))
        start = memory_at_start(budget)
        if start is None:
            return _LEAST_ESTIMATE
        return max(_LEAST_ESTIMATE, _sum(tightest(budget), _GUESSED) / start)


def _bounds(ends: tuple[float, float] | None) -> Bounds | None:
    return None if ends is None else Bounds(*ends)


def tightest(budget: MemoryBudget) -> RankBudget | None:
    """The rank with the least room."""
    if not budget.ranks:
        return None
    return min(budget.ranks, key=lambda rank: _sum(rank, {MemoryUse.FREE}) - rank.short_bytes)


def memory_at_start(budget: MemoryBudget) -> int | None:
    """Bytes that are free when the engine first looks: what the fraction is a fraction of."""
    rank = tightest(budget)
    if rank is None:
        return None
    free = rank.memory_bytes - _sum(rank, _BEFORE)
    return free if free > 0 else None


def _sum(rank: RankBudget | None, uses: frozenset[MemoryUse] | set[MemoryUse]) -> int:
    return sum(s.size.bytes for s in rank.shares if s.use in uses) if rank is not None else 0


def shares(budget: MemoryBudget, *uses: MemoryUse) -> float:
    """What these uses take of the memory at the start, as a fraction."""
    start = memory_at_start(budget)
    return 0.0 if start is None else _sum(tightest(budget), set(uses)) / start


def with_fraction(changes: Mapping[str, Any], fraction: float) -> dict[str, Any]:
    """These changes, at a fraction."""
    return {**changes, FRACTION: fraction}
