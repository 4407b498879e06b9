"""The price of changed settings, and the search for the cheapest settings that fit.

Candidates are ordered by price. Decode without CUDA graphs costs most, because every token
then takes longer. Running requests and KV tokens follow, then the depth of speculation, then the
size of prefill chunks. Losing up to the share `objective.tokens_within` of the requested tokens
costs nothing. One unit is half the price of halving the running requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import ceil, floor, inf, log2
from typing import Any

from msgspec import Struct

from speclaunch.engine.plan.budget import FitLimits, MemoryBudget, Steppable
from speclaunch.engine.plan.fit_predictor import Bounds, Predictor, Step, steps_down, with_fraction
from speclaunch.engine.plan.plan import Plan, UnknownValueError
from speclaunch.engine.plan.resolution.graphs import captured_sizes
from speclaunch.engine.plan.topics.algorithms import RUNNING
from speclaunch.engine.plan.topics.gpu import CHUNK, FRACTION, MOST, SIZES
from speclaunch.engine.plan.topics.parallel import attention_ranks
from speclaunch.engine.plan.topics.speculation import STEPS, TOKENS, TOPK


def cost(before: Plan, after: Plan, was: MemoryBudget | None, now: MemoryBudget | None) -> str:
    """Describe the loss from plan `before` to `after`. `was`, `now`: their budgets, if known."""
    lost = [
        _lost_requests(before, after),
        _lost_tokens(was, now) if now is not None else _unknown_tokens(before, after),
        _lost_context(now),
        _lost_depth(before, after),
        _lost_graphs(before, after),
        _lost_chunk(before, after),
    ]
    return "; ".join(text for text in lost if text) or "no cost compared to the recipe"


def format_setting(name: str, value: Any) -> str:
    """Return a setting as `name=value`."""
    return f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"


def format_settings(changes: Mapping[str, Any]) -> str:
    """Return settings as `name=value`, joined by commas."""
    return ", ".join(format_setting(name, value) for name, value in changes.items())


def _lost_requests(before: Plan, after: Plan) -> str | None:
    was, now = before.value_or_none(RUNNING), after.value_or_none(RUNNING)
    if was is None or now is None or now >= was:
        return None
    return f"{was} → {now} running requests"


def _lost_tokens(was: MemoryBudget | None, now: MemoryBudget | None) -> str | None:
    if now is None or now.tokens is None:
        return None
    if was is None or not was.tokens:
        return f"{now.tokens:,} KV tokens remain"
    if now.tokens >= was.tokens:
        return None
    share = 100 * (1 - now.tokens / was.tokens)
    return f"{was.tokens:,} → {now.tokens:,} KV tokens (-{share:.0f} %)"


def _unknown_tokens(before: Plan, after: Plan) -> str | None:
    was, now = before.value_or_none(FRACTION), after.value_or_none(FRACTION)
    if now is None or was == now or (was is not None and now >= was):
        return None
    return "a smaller KV cache (by an unknown amount)"


def _lost_context(now: MemoryBudget | None) -> str | None:
    if now is None or now.requests_at_context is None or now.requests_at_context >= 1:
        return None
    return f"no request of {now.context_length:,} tokens fits"


def _lost_depth(before: Plan, after: Plan) -> str | None:
    was, now = (
        tuple(plan.value_or_none(name) for name in (STEPS, TOPK, TOKENS))
        for plan in (before, after)
    )
    if was == now or None in now:
        return None
    tokens = f"{was[2]} → {now[2]} draft tokens"
    return f"{tokens} (steps / topk {was[0]} / {was[1]} → {now[0]} / {now[1]})"


def _lost_graphs(before: Plan, after: Plan) -> str | None:
    was, now = largest_graph(before), largest_graph(after)
    if was is None or now is None or now >= was:
        return None
    running = after.value_or_none(RUNNING)
    if running is not None and now >= running:
        return None  # the list ends at the number of requests
    return f"batches of more than {now} requests run without CUDA graphs (before: {was})"


def largest_graph(plan: Plan) -> int | None:
    """Return the largest batch size with a CUDA graph; None if there is none or it is unknown."""
    try:
        return max(captured_sizes(plan), default=None)
    except UnknownValueError:
        return None


def _lost_chunk(before: Plan, after: Plan) -> str | None:
    was, now = before.value_or_none(CHUNK), after.value_or_none(CHUNK)
    if was is None or now is None or was == now:
        return None
    return f"prompts are prefilled in chunks of {now:,} tokens instead of {was:,}"


WHY = {
    FRACTION: "balances memory between the KV cache, graphs and activations",
    MOST: "fewer and smaller CUDA graphs",
    SIZES: "fewer and smaller CUDA graphs",
    STEPS: "a smaller draft tree",
    TOPK: "a smaller draft tree",
    TOKENS: "fewer draft tokens to verify for each request",
    RUNNING: "fewer concurrent requests, with smaller graphs and buffers",
    CHUNK: "smaller activations during prefill",
    "max_total_tokens": "a smaller KV cache",
}


_GRAPHS = 16.0
"""Cost if no batch size has a graph. If only some lack a graph, the cost is multiplied by their
share on a log scale, because small batches are common."""
_RUNNING = 2.0
"""Cost of halving the running requests, because the other requests wait."""
_POOL = 2.0
"""Cost of each halving of the KV tokens beyond the tolerated loss, or below a useful pool."""
_STEPS, _TOKENS = 1.0, 0.5
"""Cost of halving the draft's steps, and of halving the verified tokens."""
_CONTEXT = 1.0
"""Cost of halving the context, because requests longer than the pool are rejected."""
_CHUNK = 0.5
"""Cost of halving a prefill chunk, because prompts take a little longer."""
LEAST_EACH = 512
"""Minimum useful KV tokens per running request. With less room than a short prompt and its
answer need, requests wait for each other or are retracted."""
_UNCHUNKED = 16384
"""Assumed chunk size if prompts are not chunked (`chunked_prefill_size: -1`)."""


class Prices(Struct, frozen=True):
    """Prices of changes to a deployment, computed without resolving its plan again."""

    running: int | None
    largest_graph: int | None
    steps: int | None
    tokens: int | None
    chunk: int | None
    ranks: int = 1
    """Number of data-parallel attention ranks, which share requests and chunks."""

    @classmethod
    def of(cls, plan: Plan) -> Prices:
        numbers = (_number(plan, name) for name in (RUNNING, STEPS, TOKENS, CHUNK))
        running, steps, tokens, chunk = numbers
        ranks = max(1, attention_ranks(plan))
        return cls(running, largest_graph(plan), steps, tokens, chunk, ranks)

    def settings(self, changes: Mapping[str, Any]) -> float:
        """Return the price of changes, except `mem_fraction_static`."""
        running = changes.get(RUNNING, self.running)
        chunk = changes.get(CHUNK)
        return (
            _GRAPHS * max(0.0, self._covered(self.running, {}) - self._covered(running, changes))
            + _RUNNING * _halvings(self.running, running)
            + _STEPS * _halvings(self.steps, changes.get(STEPS, self.steps))
            + _TOKENS * _halvings(self.tokens, changes.get(TOKENS, self.tokens))
            + _CHUNK * _halvings(self.chunk, None if chunk is None else chunk // self.ranks)
        )

    def _covered(self, running: int | None, changes: Mapping[str, Any]) -> float:
        """Return the share of batch sizes with a graph, on a log scale up to `running` requests."""
        if not running or not self.largest_graph:
            return 0.0
        each = max(1, running // self.ranks)
        limits = (changes.get(MOST), *(changes.get(SIZES) or ()))
        largest = max((limit for limit in limits if limit), default=self.largest_graph)
        return log2(1 + min(largest, self.largest_graph, each)) / log2(1 + each)


def pool_price(budget: MemoryBudget, enough: float | None) -> float:
    """Return the price of a budget's KV cache. `enough`: token count at which the cache costs
    nothing; None if unknown."""
    tokens = float(budget.tokens or 1)
    price = 0.0 if enough is None else _POOL * _halvings(enough, tokens)
    context = budget.context_length
    if context is not None and budget.requests_at_context == 0:
        price += _CONTEXT * _halvings(float(context), tokens)
    useful = float((budget.running_requests or 1) * min(LEAST_EACH, context or LEAST_EACH))
    return price + _POOL * _halvings(useful, tokens)


def _number(plan: Plan, name: str) -> int | None:
    value = plan.value_or_none(name)
    if not isinstance(value, int):
        return None
    return value if value > 0 else _UNCHUNKED


def _halvings(was: float | None, now: float | None) -> float:
    return log2(was / now) if was and now and was > now > 0 else 0.0


OBJECTIVE = (
    "preserve decode graphs first, then running requests and KV tokens, then speculation depth, "
    "then prefill chunks"
)

NARROW = 0.02
"""Maximum range width at which a search chooses the middle fraction, not the upper end."""
LEAST_WIDTH = 0.002
"""Minimum width of a range to search, because the engine accepts only three decimal places."""
_PREFERRED = (Steppable.TREE, Steppable.GRAPHS, Steppable.CHUNK, Steppable.POOL)
"""Settings to preserve after the running requests, most valuable first."""

BoundsOf = Callable[[Mapping[str, Any]], Bounds | None]
"""Function that returns the range of working fractions for some changes; None if unknown."""


class FitCandidate(Struct, frozen=True):
    """Settings that are predicted to work."""

    changes: Mapping[str, Any]
    """All changes to the recipe, with `mem_fraction_static`."""
    budget: MemoryBudget
    bounds: Bounds

    @property
    def tokens(self) -> int:
        return self.budget.tokens or 0


class Levels(Struct, frozen=True):
    """The lower values that a search may try for each setting."""

    base: Mapping[str, Any]
    """Initial changes of the search, without `mem_fraction_static`."""
    running: tuple[Step, ...]
    others: tuple[tuple[Step, ...], ...]

    def smallest(self, running: Step | None = None) -> dict[str, Any]:
        """Return changes with every setting at its floor, except the step `running`, if passed."""
        last = self.running[-1] if running is None else running
        changes = {**self.base, **last}
        for steps in self.others:
            changes |= steps[-1]
        return changes

    def combinations(self, running: Step) -> Iterable[dict[str, Any]]:
        """Yield all combinations of changes that include `running`, mildest first."""
        for steps in product(*self.others):
            changes = {**self.base, **running}
            for step in steps:
                changes |= step
            yield changes


def levels(predictor: Predictor, base: Mapping[str, Any], limits: FitLimits) -> Levels:
    """Return the lower values that the limits allow for each setting, starting from `base`."""
    plan = predictor.plan(base)

    def of(knob: Steppable) -> tuple[Step, ...]:
        steps = steps_down(plan, knob, limits.floors) if knob in limits.order else ()
        if knob is Steppable.GRAPHS:
            steps = tuple(step for step in steps if _captures(predictor, {**base, **step}))
        return ({}, *steps)

    fixed = {name: value for name, value in base.items() if name != FRACTION}
    return Levels(fixed, of(Steppable.RUNNING), tuple(of(knob) for knob in _PREFERRED))


def _captures(predictor: Predictor, changes: Mapping[str, Any]) -> bool:
    """True if a decode graph remains after `changes`. The engine drops sizes that ranks cannot
    share evenly."""
    try:
        return bool(captured_sizes(predictor.plan(changes)))
    except UnknownValueError:
        return False


class Search(Struct, frozen=True):
    """Parameters of a search for settings that fit."""

    predictor: Predictor
    limits: FitLimits
    bounds_of: BoundsOf
    requested_tokens: int | None = None
    """KV tokens that the recipe requests; None if unknown."""
    least_tokens: int = 0
    """Number of KV tokens below which the pool is too small to be useful."""
    tried: Callable[[Mapping[str, Any]], bool] = lambda _: False
    """Function that returns True for settings that have already failed."""
    narrow: float = NARROW
    """See `NARROW`. 0 selects the upper end, which has the most tokens but no margin of error."""
    least_width: float = 0.0
    """Minimum width of the working range. Narrower ranges are used only with every setting at its
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
    """Return `changes` with the best untried fraction.

    None if no fraction works or the pool is too small.
    """
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

    Only the middle if the range is at most `narrow` wide; empty if below `LEAST_WIDTH`.
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
