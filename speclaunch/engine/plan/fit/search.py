"""Finds the settings with the smallest loss that are predicted to fit.

Candidates are ordered by price (`price.py`): decode without CUDA graphs costs most, then running
requests and KV tokens, then the depth of speculation, then the size of prefill chunks. Losing a
share of the requested tokens (`objective.tokens_within`) costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import ceil, floor, inf
from typing import Any

from msgspec import Struct

from speclaunch.engine.plan.budget import MemoryBudget
from speclaunch.engine.plan.fit.knobs import FRACTION, Step, steps_down
from speclaunch.engine.plan.fit.limits import FitLimits, Steppable
from speclaunch.engine.plan.fit.predict import Bounds, Predictor, with_fraction
from speclaunch.engine.plan.fit.price import Prices, pool_price
from speclaunch.engine.plan.plan import UnknownValueError
from speclaunch.engine.plan.resolution.graphs import captured_sizes

OBJECTIVE = (
    "preserve decode graphs first, then running requests and KV tokens, then speculation depth, "
    "then prefill chunks"
)

NARROW = 0.02
"""A range of fractions up to this width uses its middle; a wider range uses its upper end."""
LEAST_WIDTH = 0.002
"""Minimum width of a range to search: the engine accepts three digits."""
_PREFERRED = (Steppable.TREE, Steppable.GRAPHS, Steppable.CHUNK, Steppable.POOL)
"""Settings to preserve after the running requests, most valuable first."""

BoundsOf = Callable[[Mapping[str, Any]], Bounds | None]
"""Returns the range of working fractions for changes; None if unknown."""


class FitCandidate(Struct, frozen=True):
    """Settings that are predicted to work."""

    changes: Mapping[str, Any]
    """All changes to the recipe, including the fraction."""
    budget: MemoryBudget
    bounds: Bounds

    @property
    def tokens(self) -> int:
        """Predicted KV tokens; 0 if unknown."""
        return self.budget.tokens or 0


class Levels(Struct, frozen=True):
    """The lower values of each setting that a search may try."""

    base: Mapping[str, Any]
    """Changes already made, without the fraction."""
    running: tuple[Step, ...]
    others: tuple[tuple[Step, ...], ...]

    def smallest(self, running: Step | None = None) -> dict[str, Any]:
        """Return changes with every setting at its floor, but `running` unchanged if passed."""
        last = self.running[-1] if running is None else running
        changes = {**self.base, **last}
        for steps in self.others:
            changes |= steps[-1]
        return changes

    def combinations(self, running: Step) -> Iterable[dict[str, Any]]:
        """Yield all combinations for a number of running requests, the mildest first."""
        for steps in product(*self.others):
            changes = {**self.base, **running}
            for step in steps:
                changes |= step
            yield changes


def levels(predictor: Predictor, base: Mapping[str, Any], limits: FitLimits) -> Levels:
    """Return the lower values of each setting that the limits allow, starting from `base`."""
    plan = predictor.plan(base)

    def of(knob: Steppable) -> tuple[Step, ...]:
        steps = steps_down(plan, knob, limits.floors) if knob in limits.order else ()
        if knob is Steppable.GRAPHS:
            steps = tuple(step for step in steps if _captures(predictor, {**base, **step}))
        return ({}, *steps)

    fixed = {name: value for name, value in base.items() if name != FRACTION}
    return Levels(fixed, of(Steppable.RUNNING), tuple(of(knob) for knob in _PREFERRED))


def _captures(predictor: Predictor, changes: Mapping[str, Any]) -> bool:
    """True if at least one decode graph remains. Ranks that share batches drop sizes that they
    cannot divide."""
    try:
        return bool(captured_sizes(predictor.plan(changes)))
    except UnknownValueError:
        return False


class Search(Struct, frozen=True):
    """Parameters of a search."""

    predictor: Predictor
    limits: FitLimits
    bounds_of: BoundsOf
    requested_tokens: int | None = None
    """KV tokens that the recipe requests, if known."""
    least_tokens: int = 0
    """Number of KV tokens below which the pool is too small to be useful."""
    tried: Callable[[Mapping[str, Any]], bool] = lambda _: False
    """Returns True for settings that have already failed."""
    narrow: float = NARROW
    """See `NARROW`. 0 if the bounds need no margin of error: the upper end then gives the most
    tokens."""
    least_width: float = 0.0
    """Minimum width of the working range. Narrower ranges count only with every setting at its
    floor."""

    @property
    def enough(self) -> float | None:
        """Number of KV tokens that satisfies the recipe; None if unknown."""
        if self.requested_tokens is None:
            return None
        return self.requested_tokens * (1 - self.limits.tokens_within)


def best(search: Search, steps: Levels) -> FitCandidate | None:
    """Return the cheapest settings that are predicted to fit; None if none exist."""
    prices = Prices.of(search.predictor.plan({}))
    priced = [
        (prices.settings(changes), number, changes)
        for number, running in enumerate(steps.running)
        for changes in steps.combinations(running)
    ]
    priced.sort(key=lambda entry: entry[0])
    floors: dict[int, FitCandidate | None] = {}
    cheapest, found = inf, None
    for price, number, changes in priced:
        if price >= cheapest:
            break  # the pool's price only adds to it
        if number not in floors:
            floors[number] = candidate_of(search, steps.smallest(steps.running[number]))
        if floors[number] is None:
            continue  # more requests do not fit, regardless of other steps
        candidate = candidate_of(search, changes)
        if candidate is None or candidate.bounds.width < search.least_width:
            continue
        total = price + pool_price(candidate.budget, search.enough)
        if total < cheapest:
            cheapest, found = total, candidate
    return found or next((floors[number] for number in sorted(floors) if floors[number]), None)


def candidate_of(search: Search, changes: Mapping[str, Any]) -> FitCandidate | None:
    """Return these changes at their best fraction; None if none exists."""
    bounds = search.bounds_of(changes)
    if bounds is None:
        return None
    for complete in _at_fractions(search, changes, bounds):
        if search.tried(complete):
            continue
        found = FitCandidate(complete, search.predictor.budget(complete), bounds)
        return found if found.tokens >= search.least_tokens else None
    return None


def _at_fractions(
    search: Search, changes: Mapping[str, Any], bounds: Bounds
) -> Iterator[Mapping[str, Any]]:
    if Steppable.FRACTION in search.limits.order:
        for fraction in fractions(bounds, search.limits, search.narrow):
            yield with_fraction(changes, fraction)
        return
    fixed = search.predictor.plan(changes).value_or_none(FRACTION)
    if fixed is not None and bounds.low <= fixed <= bounds.high:
        yield changes


def fractions(bounds: Bounds, limits: FitLimits, narrow: float = NARROW) -> Sequence[float]:
    """Return the fractions to try within bounds, best first: the upper end, the middle, the lower
    end.

    A range no wider than `narrow` has only its middle.
    """
    low = max(bounds.low, limits.floors.mem_fraction_static)
    high = min(bounds.high, limits.most_fraction)
    if high - low < LEAST_WIDTH:
        return ()
    middle = round((low + high) / 2, 3)
    upper = floor(high * 1000 + 1e-6) / 1000
    if high - low <= narrow:
        return (middle,)
    return (upper, middle, ceil(low * 1000 + 1) / 1000)
