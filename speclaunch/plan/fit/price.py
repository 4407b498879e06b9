"""What a change of the settings costs the user, as one number that orders candidates.

A unit is half of what one halving of the running requests costs. Decode without CUDA graphs is the
dearest: every token of such a batch takes longer, whatever else is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log2
from typing import Any

from speclaunch.plan.budget import Budget
from speclaunch.plan.fit.cost import largest_graph
from speclaunch.plan.fit.knobs import STEPS, TOKENS
from speclaunch.plan.plan import Plan
from speclaunch.plan.topics.graphs import MOST, SIZES
from speclaunch.plan.topics.parallel import attention_ranks
from speclaunch.record import record

RUNNING, CHUNK = "max_running_requests", "chunked_prefill_size"

_GRAPHS = 16.0
"""All batch sizes without a graph; a part of them by its share of the doublings, because small
batches are the common ones."""
_RUNNING = 2.0
"""Half of the running requests: the others wait."""
_POOL = 2.0
"""Half of the KV tokens beyond what may be lost, or half of a useful pool."""
_STEPS, _TOKENS = 1.0, 0.5
"""Half of the draft's steps, and half of the tokens that are verified."""
_CONTEXT = 1.0
"""Half of the context: a request that is longer than the pool is refused."""
_CHUNK = 0.5
"""Half of a prefill chunk: prompts take a little longer."""
LEAST_EACH = 512
"""KV tokens for each running request: with less than a short prompt and its answer, requests wait
for each other, or are taken back."""
_WHOLE_PROMPTS = 16384
"""What prompts that are never cut (`chunked_prefill_size: -1`) count as."""


@record
class Prices:
    """The prices of changes against a deployment, worked out without resolving it again."""

    running: int | None
    largest_graph: int | None
    steps: int | None
    tokens: int | None
    chunk: int | None
    ranks: int = 1
    """Data-parallel ranks of attention, which share requests and chunks."""

    @classmethod
    def of(cls, plan: Plan) -> Prices:
        """Return the prices against a plan."""
        numbers = (_number(plan, name) for name in (RUNNING, STEPS, TOKENS, CHUNK))
        running, steps, tokens, chunk = numbers
        ranks = max(1, attention_ranks(plan))
        return cls(running, largest_graph(plan), steps, tokens, chunk, ranks)

    def settings(self, changes: Mapping[str, Any]) -> float:
        """Return the price of all changes but the fraction."""
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
        """The share of the batch sizes, up to the running requests, that have a graph."""
        if not running or not self.largest_graph:
            return 0.0
        each = max(1, running // self.ranks)
        limits = (changes.get(MOST), *(changes.get(SIZES) or ()))
        largest = max((one for one in limits if one), default=self.largest_graph)
        return log2(1 + min(largest, self.largest_graph, each)) / log2(1 + each)


def pool_price(budget: Budget, enough: float | None) -> float:
    """Return the price of a KV cache; `enough`: tokens that cost nothing, None if unknown."""
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
    return value if value > 0 else _WHOLE_PROMPTS


def _halvings(was: float | None, now: float | None) -> float:
    return log2(was / now) if was and now and was > now > 0 else 0.0
