"""Finds the best settings for a load that the user specifies (`best_for`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from speclaunch.engine.plan.budget import Fit
from speclaunch.engine.plan.fit.knobs import FRACTION, TOKENS, graphs_can_shrink
from speclaunch.engine.plan.fit.predict import (
    BudgetOf,
    Choice,
    Margins,
    PlanWith,
    Predictor,
    margins,
)
from speclaunch.engine.plan.fit.suggestion import Alternative, alternatives
from speclaunch.engine.plan.memory.budget import budget as work_out
from speclaunch.engine.plan.memory.estimates import number
from speclaunch.engine.plan.memory.terms import context_length
from speclaunch.engine.plan.plan import Plan, UnknownValueError
from speclaunch.engine.plan.resolution.graphs import captured_sizes
from speclaunch.engine.plan.topics.graphs import MOST, SIZES
from speclaunch.engine.plan.topics.parallel import attention_ranks

RUNNING = "max_running_requests"
REQUESTS, TOKENS_EACH = 32, 4096
"""Typical load of a chat server, assumed if the user specifies none."""
_DIGITS = 1000
"""Resolution of a fraction: the engine accepts three digits."""


class RequestLoad(Struct, frozen=True):
    """Number of concurrent requests, and tokens per request (prompt and answer)."""

    requests: int
    """0 if unknown."""
    context: int
    """0 if unknown."""
    assumed: tuple[str, ...] = ()
    """Assumed values, as options of `plan` that the user did not set."""

    @property
    def summary(self) -> str:
        """The known part of the load as text, such as `64 requests of 8,192 tokens`."""
        noun = "request" if self.requests == 1 else "requests"
        parts = (f"{self.requests:,} {noun}", f"of {self.context:,} tokens")
        known_parts = zip(parts, (self.requests, self.context), strict=True)
        return " ".join(part for part, there in known_parts if there)


class Best(Struct, frozen=True):
    """The settings for a load, with the verdict `fit`.

    FITS: all requests fit at the same time. TIGHT: they do so only in the best case. FAILS: only
    `requests` of them fit. UNKNOWN: a fact is missing.
    """

    fit: Fit
    why: str
    load: RequestLoad
    requests: int = 0
    """Number of the load's requests that fit at the same time, across all ranks."""
    tokens_needed: int = 0
    """KV tokens that the complete load needs on one data-parallel rank."""
    changes: Mapping[str, Any] = {}
    """Changes to the recipe's server arguments."""
    graph_sizes: tuple[int, ...] = ()
    """Batch sizes that have a CUDA graph after the changes."""
    margins: Margins | None = None
    alternatives: tuple[Alternative, ...] = ()
    """Alternatives if not even one request fits."""


def load_of(plan: Plan, requests: int | None, context: int | None) -> RequestLoad:
    """Return the load, with defaults (`REQUESTS`, `TOKENS_EACH`) for unset values.

    Raises UnknownValueError for a missing fact, ValueError if `context` exceeds the model's limit.
    """
    longest = context_length(plan)
    if context is not None and context > longest:
        raise ValueError(f"--context {context} exceeds this model's limit ({longest})")
    assumed = []
    if requests is None:
        requests = REQUESTS
        assumed.append(f"--requests {requests}")
    if context is None:
        context = min(TOKENS_EACH, longest)
        assumed.append(f"--context {context}")
    return RequestLoad(requests, context, tuple(assumed))


def best_for(load: RequestLoad, plan_with: PlanWith, budget: BudgetOf = work_out) -> Best:
    """Return the memory fraction, running requests and graphs for a load. Never raises for a
    missing fact.

    Uses a fraction that is certain to work if it carries the load, otherwise a likely one. An
    assumed number of requests never lowers the recipe's number.

    Fewer concurrent requests need smaller graphs, which leaves more memory for the KV cache. If not
    all requests fit, the result is therefore computed again for those that do.
    """
    predictor = Predictor(plan_with, budget)
    try:
        ranks = attention_ranks(predictor.plan({}))
        running = _least_running(predictor.plan({}), load)
        while True:
            changes = _changes(predictor.plan({}), running, ranks)
            plan = predictor.plan(changes)
            found = margins(plan)
            if found is None:
                return _without(predictor, load, changes)
            each = _tokens_per_request(plan, load.context)
            choice = _choice(found, min(running, load.requests), each, ranks)
            room = _room(choice, each, ranks)
            if room >= min(running, load.requests) or running <= ranks:
                break
            running = max(ranks, min(room, running - 1))
    except UnknownValueError as error:
        return Best(Fit.UNKNOWN, str(error), load)
    chosen = {**changes, FRACTION: int(choice.fraction * _DIGITS + 1e-6) / _DIGITS}
    served = min(room, load.requests)
    needed = -(-load.requests // ranks) * each
    why = _why(load, served, choice.tokens, needed, ranks)
    fit = Fit.FAILS
    if served >= load.requests:
        fit = Fit.TIGHT if found.likely is None else Fit.FITS
    others = alternatives(predictor, changes) if not served else ()
    sizes = _sizes(predictor.plan(chosen))
    return Best(fit, why, load, served, needed, chosen, sizes, found, others)


def _least_running(plan: Plan, load: RequestLoad) -> int:
    """Return the initial number of requests: the load's, or the recipe's if it is larger and the
    load is only assumed."""
    own = plan.value_or_none(RUNNING)
    return max(load.requests, int(own)) if load.assumed and own else load.requests


def _choice(found: Margins, requests: int, each: int, ranks: int) -> Choice:
    """Return the certain fraction if it carries the requests, else the best."""
    certain = found.certain
    if certain is not None and _room(certain, each, ranks) >= requests:
        return certain
    return found.best


def _room(choice: Choice, each: int, ranks: int) -> int:
    """Return the number of requests that fit at the same time, across all ranks."""
    return min(choice.tokens // each, choice.running_requests) * ranks


def _changes(plan: Plan, running: int, ranks: int) -> dict[str, Any]:
    """Return the arguments for `running` requests, including graph sizes. The engine divides the
    requests among its ranks and drops the remainder."""
    each = max(1, -(-running // ranks))
    changes: dict[str, Any] = {RUNNING: each * ranks}
    if graphs_can_shrink(plan):
        if plan.user_value(SIZES) is not None:
            changes[SIZES] = None
        changes[MOST] = each
    return changes


def _tokens_per_request(plan: Plan, context: int) -> int:
    """Return the KV cache slots that one request needs: complete pages, including one step's draft
    tokens."""
    drafts = int(plan.value_or_none(TOKENS) or 0) if plan.algorithm else 0
    page = max(1, number(plan, "page_size"))
    return -(-(context + drafts) // page) * page


def _sizes(plan: Plan) -> tuple[int, ...]:
    try:
        return tuple(captured_sizes(plan))
    except UnknownValueError:
        return ()


def _why(load: RequestLoad, served: int, tokens: int, needed: int, ranks: int) -> str:
    of = f" on each of {ranks} data-parallel ranks" if ranks > 1 else ""
    need = "needs" if load.requests == 1 else "need"
    demand = f"{load.summary} {need} {needed:,} KV tokens{of}"
    if served >= load.requests:
        return f"{demand}; {tokens:,} are available"
    if not served:
        return f"{demand}, but {tokens:,} are available: no request fits"
    return f"{demand}, but {tokens:,} are available: {served:,} run at a time, the others wait"


def _without(predictor: Predictor, load: RequestLoad, changes: Mapping[str, Any]) -> Best:
    found = predictor.budget(changes)
    if found.fit is Fit.UNKNOWN:
        return Best(Fit.UNKNOWN, found.why, load)
    others = alternatives(predictor, changes)
    return Best(Fit.FAILS, found.why, load, changes=changes, alternatives=others)
