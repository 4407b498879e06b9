"""Changes that make a deployment fit (`suggest_fit`), and the best settings for a load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from speclaunch.core import SpeclaunchError
from speclaunch.engine.plan.budget import (
    DEFAULT_LIMITS,
    Fit,
    FitLimits,
    MemoryBudget,
    MemoryUse,
    RankBudget,
    Steppable,
)
from speclaunch.engine.plan.fit_predictor import (
    BudgetOf,
    Choice,
    Margins,
    PlanWith,
    Predictor,
    graphs_can_shrink,
    margins,
    tightest,
)
from speclaunch.engine.plan.fit_search import (
    LEAST_EACH,
    OBJECTIVE,
    WHY,
    FitCandidate,
    Search,
    best,
    cost,
    levels,
)
from speclaunch.engine.plan.memory.budget import budget as work_out
from speclaunch.engine.plan.memory.estimates import number
from speclaunch.engine.plan.memory.terms import context_length
from speclaunch.engine.plan.plan import Plan, UnknownValueError
from speclaunch.engine.plan.resolution.graphs import captured_sizes
from speclaunch.engine.plan.topics import parallel
from speclaunch.engine.plan.topics.algorithms import RUNNING
from speclaunch.engine.plan.topics.gpu import FRACTION, MOST, SIZES, draft_in_pool
from speclaunch.engine.plan.topics.parallel import attention_ranks
from speclaunch.engine.plan.topics.speculation import TOKENS

_GIB = 1 << 30
_MOST_RANKS = 16
_FP8 = 80
"""Minimum compute capability for 8-bit weights (sglang 0.5.23 layers/quantization/fp8.py:329)."""


class Alternative(Struct, frozen=True):
    """A change that is not a `Steppable` setting, such as more GPUs."""

    what: str
    changes: Mapping[str, Any]
    """Changed server arguments; empty for a different GPU or more main memory."""
    verdict: str
    """The verdict as text, such as `does not fit either`."""
    fits: bool


def alternatives(predictor: Predictor, smallest: Mapping[str, Any]) -> tuple[Alternative, ...]:
    """Return alternatives, each checked with every other setting at its floor (`smallest`)."""
    found: list[Alternative] = []
    for what, changes in _options(predictor.plan({})):
        if "tp_size" in changes and any(earlier.fits for earlier in found):
            continue  # fewer GPUs suffice
        alternative = _check_alternative(predictor, what, changes, smallest)
        if alternative is not None:
            found.append(alternative)
    bigger = _bigger(predictor, smallest)
    return (*found, bigger) if bigger is not None else tuple(found)


def _options(plan: Plan) -> Iterator[tuple[str, dict[str, Any]]]:
    if plan.device != "cpu":
        yield from _on_gpus(plan)
    if plan.value_or_none("speculative_draft_model_path") is not None and not _refuses_ngram(plan):
        yield (
            "no draft model (`speculation=ngram`)",
            {
                "speculative_algorithm": "NGRAM",
                "speculative_draft_model_path": None,
                "speculative_num_steps": None,
                "speculative_eagle_topk": None,
            },
        )


def _on_gpus(plan: Plan) -> Iterator[tuple[str, dict[str, Any]]]:
    ranks = int(plan.value_or_none("tp_size") or 1)
    hardware = plan.facts.hardware
    available = hardware.known_count if hardware is not None else None
    while ranks * 2 <= _MOST_RANKS:
        ranks *= 2
        here = "" if available is None or ranks <= available else f" ({available} here)"
        yield f"tensor parallelism across {ranks} GPUs{here}", {"tp_size": ranks}
    target = plan.facts.target
    quantised = target is not None and target.quantization is not None
    capability = hardware.capability if hardware is not None else None
    able = capability is None or capability >= _FP8
    if able and not quantised and plan.value_or_none("quantization") is None:
        yield "weights quantized to 8 bits (a smaller target)", {"quantization": "fp8"}
    if plan.value_or_none("kv_cache_dtype") in (None, "auto") and plan.device == "cuda":
        yield "an 8-bit KV cache", {"kv_cache_dtype": "fp8_e5m2"}


def _refuses_ngram(plan: Plan) -> bool:
    try:
        return parallel.NGRAM.holds(plan)
    except UnknownValueError:
        return True


def _check_alternative(
    predictor: Predictor, what: str, changes: Mapping[str, Any], smallest: Mapping[str, Any]
) -> Alternative | None:
    try:
        bounds = predictor.bounds({**smallest, **changes})
    except (SpeclaunchError, UnknownValueError, ValueError):
        return None  # unsupported by this version or this model
    if bounds is None:
        return None
    if bounds.width <= 0:
        return Alternative(what, changes, "does not fit either", False)
    text = f"fits with mem_fraction_static from {bounds.low:.3f} to {bounds.high:.3f}"
    return Alternative(what, changes, text, True)


def _bigger(predictor: Predictor, smallest: Mapping[str, Any]) -> Alternative | None:
    budget = predictor.budget(smallest)
    rank = tightest(budget)
    if rank is None or budget.fit is not Fit.FAILS:
        return None
    needed = needs(rank)
    cpu = predictor.plan(smallest).device == "cpu"
    what, whose = ("more main memory", "the machine") if cpu else ("a larger GPU", "each GPU")
    text = f"the smallest configuration needs more than {needed / _GIB:.1f} GiB on {whose}"
    return Alternative(what, {}, text, False)


def needs(rank: RankBudget) -> int:
    """Return the bytes of all uses on a rank except the KV cache and free memory."""
    idle = {MemoryUse.FREE, MemoryUse.TARGET_KV, MemoryUse.DRAFT_KV}
    return sum(share.size.bytes for share in rank.shares if share.use not in idle)


def binding(predictor: Predictor, changes: Mapping[str, Any]) -> str:
    """Return the reason why no fraction works with `changes`, including the conflicting sizes."""
    bounds, rank = predictor.bounds(changes), tightest(predictor.budget(changes))
    if bounds is None or rank is None:
        return predictor.budget(changes).why
    plan = predictor.plan(changes)
    charged = draft_in_pool(plan)
    device, suffix = (
        ("the machine", "")
        if plan.device == "cpu"
        else ("a GPU", " in addition to CUDA's own memory")
    )
    uses = [
        f"{s.use} {s.size.bytes / _GIB:.1f} GiB" for s in rank.shares if _static(s.use, charged)
    ]
    rest = [f"{s.use} {s.size.bytes / _GIB:.1f} GiB" for s in rank.shares if _slack(s.use, charged)]
    if bounds.low >= 1:
        taken = " and ".join(uses) or "the weights"
        return f"{device} has {rank.memory_bytes / _GIB:.1f} GiB, but {taken} do not fit{suffix}"
    static = " and ".join(uses) or "the weights"
    return (
        f"with {rank.memory_bytes / _GIB:.1f} GiB on {device}, {static}"
        f" need mem_fraction_static above {bounds.low:.3f}, but {', '.join(rest) or 'other uses'}"
        f" need it below {bounds.high:.3f}"
    )


def _static(use: MemoryUse, charged: bool) -> bool:
    return use in (MemoryUse.TARGET_WEIGHTS, MemoryUse.STATE) or (
        use is MemoryUse.DRAFT_WEIGHTS and charged
    )


def _slack(use: MemoryUse, charged: bool) -> bool:
    return use in (MemoryUse.GRAPHS, MemoryUse.ACTIVATIONS) or (
        use is MemoryUse.DRAFT_WEIGHTS and not charged
    )


_WORTH_IT = 1.05
"""Minimum growth factor of the KV cache that makes a different fraction worth reporting."""


class Suggested(Struct, frozen=True):
    """One argument to change: its effective value and the suggested value."""

    name: str
    before: Any
    """Effective value; None if unknown."""
    value: Any
    why: str
    cost: str


class Suggestion(Struct, frozen=True):
    """The result of a fit search, with the verdict `fit`.

    FITS: the changes (or none) suffice. TIGHT: they suffice only in the best case. FAILS: no
    changes suffice. UNKNOWN: the budget is unknown.
    """

    fit: Fit
    why: str
    objective: str
    before: MemoryBudget
    changes: tuple[Suggested, ...] = ()
    after: MemoryBudget | None = None
    cost: str = ""
    """Loss from all changes together."""
    alternatives: tuple[Alternative, ...] = ()
    """Alternatives if no settings fit; empty otherwise."""
    margins: Margins | None = None
    """Working values of `mem_fraction_static` after the changes; None if unknown."""

    @property
    def arguments(self) -> Mapping[str, Any]:
        return {change.name: change.value for change in self.changes}


def suggest_fit(
    plan_with: PlanWith,
    *,
    budget: BudgetOf = work_out,
    limits: FitLimits = DEFAULT_LIMITS,
) -> Suggestion:
    """Return the settings predicted to fit with the smallest loss; tight settings if none fit.

    Never raises for missing facts: the suggestion is then UNKNOWN.
    """
    predictor = Predictor(plan_with, budget)
    before = predictor.budget({})
    if before.fit is Fit.UNKNOWN:
        return Suggestion(Fit.UNKNOWN, before.why, OBJECTIVE, before)
    if before.fit is Fit.FITS:
        return _improved(predictor, before, limits)
    for fit in (Fit.FITS, Fit.TIGHT):
        if fit is before.fit:
            why = f"no settings are likely to fit; the current settings are tight: {before.why}"
            return Suggestion(fit, why, OBJECTIVE, before, margins=margins(predictor.plan({})))
        found = cheapest(predictor, limits, fit, before.tokens or None)
        if found is not None:
            return _suggestion(predictor, before, found, fit)
    return _nothing(predictor, before, limits)


def cheapest(
    predictor: Predictor,
    limits: FitLimits,
    fit: Fit = Fit.FITS,
    requested_tokens: int | None = None,
    least_tokens: int = 0,
) -> FitCandidate | None:
    """Return the cheapest settings that fit, or may fit if `fit` is TIGHT; None if none exist.

    `requested_tokens`: the recipe's KV tokens, if known. `least_tokens`: the smallest useful pool.
    """
    bounds_of = predictor.likely if fit is Fit.FITS else predictor.working
    search = Search(predictor, limits, bounds_of, requested_tokens, least_tokens, narrow=0.0)
    return best(search, levels(predictor, {}, limits))


def _nothing(predictor: Predictor, before: MemoryBudget, limits: FitLimits) -> Suggestion:
    smallest = levels(predictor, {}, limits).smallest()
    others = alternatives(predictor, smallest)
    why = binding(predictor, smallest)
    return Suggestion(Fit.FAILS, why, OBJECTIVE, before, alternatives=others)


def _improved(predictor: Predictor, before: MemoryBudget, limits: FitLimits) -> Suggestion:
    """Return a suggestion for a plan that fits: no change, or a better fraction."""
    plan = predictor.plan({})
    found = margins(plan)
    doubt = _doubt(before)
    best = None if found is None else found.best
    if doubt is None or best is None or Steppable.FRACTION not in limits.order:
        text = (
            f"the deployment fits as configured: {before.why}{_each(before)}{_more(before, best)}"
        )
        if doubt is not None:
            text = f"the deployment fits as configured, but {doubt}"
        return Suggestion(Fit.FITS, text, OBJECTIVE, before, margins=found)
    high = min(best.fraction, limits.most_fraction)
    value = int(high * 1000 + 1e-6) / 1000
    after = predictor.budget({FRACTION: value})
    if after.fit is not Fit.FITS or value == before.mem_fraction_static:
        text = f"the deployment fits as configured, but {doubt}"
        return Suggestion(Fit.FITS, text, OBJECTIVE, before, margins=found)
    text = cost(plan, predictor.plan({FRACTION: value}), before, after)
    change = Suggested(FRACTION, plan.value_or_none(FRACTION), value, WHY[FRACTION], text)
    why = f"it fits as configured, but {doubt}; {FRACTION}={value:g} is likely to work: {after.why}"
    return Suggestion(
        Fit.FITS, f"{why}{_each(after)}", OBJECTIVE, before, (change,), after, text, margins=found
    )


def _more(before: MemoryBudget, best: Choice | None) -> str:
    if best is None or before.tokens is None or best.tokens <= before.tokens * _WORTH_IT:
        return ""
    return f"; {FRACTION}={best.fraction:.3f} is likely to work too, with {best.tokens:,} KV tokens"


def _doubt(before: MemoryBudget) -> str | None:
    tokens, running = before.tokens, before.running_requests
    if tokens is None or not running or tokens >= running * LEAST_EACH:
        return None
    if before.context_length and tokens >= running * before.context_length:
        return None
    return (
        f"{tokens:,} KV tokens leave only {tokens // running:,} for each of {running:,} running "
        "requests"
    )


def _each(budget: MemoryBudget) -> str:
    """Return a note on the number of full-context requests that fit; empty if unknown."""
    number, context = budget.requests_at_context, budget.context_length
    if number is None or context is None:
        return ""
    many = "no request" if not number else f"{number:,} request{'s' * (number > 1)}"
    return f"; room for {many} of full context length ({context:,} tokens)"


def _suggestion(
    predictor: Predictor, before: MemoryBudget, found: FitCandidate, fit: Fit
) -> Suggestion:
    plan = predictor.plan({})
    changes = []
    for name, value in found.changes.items():
        alone = predictor.plan({name: value})
        now = predictor.budget({name: value})
        text = cost(plan, alone, before, now if now.tokens else None)
        changes.append(Suggested(name, plan.value_or_none(name), value, WHY.get(name, ""), text))
    total = cost(plan, predictor.plan(found.changes), before, found.budget)
    return Suggestion(
        fit,
        found.budget.why + _each(found.budget),
        OBJECTIVE,
        before,
        tuple(changes),
        found.budget,
        total,
        margins=margins(predictor.plan(found.changes)),
    )


REQUESTS, TOKENS_EACH = 32, 4096
"""Number of requests, and tokens per request, on a typical chat server. Assumed for unset
values."""
_DIGITS = 1000
"""Steps per unit of `mem_fraction_static`: the engine accepts only three decimal places."""


class RequestLoad(Struct, frozen=True):
    """A load: concurrent requests of equal length."""

    requests: int
    """Number of concurrent requests; 0 if unknown."""
    context: int
    """Tokens per request, including prompt and answer; 0 if unknown."""
    assumed: tuple[str, ...] = ()
    """Unset options of the `plan` command with their assumed values, such as `--requests 32`."""

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
    graph_sizes: tuple[int, ...] = ()
    """Batch sizes that have a CUDA graph after the changes."""
    margins: Margins | None = None
    alternatives: tuple[Alternative, ...] = ()
    """Alternatives if not even one request fits."""


def load_of(plan: Plan, requests: int | None, context: int | None) -> RequestLoad:
    """Return the load, with defaults (`REQUESTS`, `TOKENS_EACH`) for unset values.

    Raises UnknownValueError for a missing fact, and ValueError if `context` exceeds the model's
    limit.
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

    If the load fits with a fraction that is certain to work, uses that; else a likely fraction. An
    assumed request count never lowers the recipe's limit.

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
    """Return the load's request count. If it is assumed, return at least the recipe's limit."""
    own = plan.value_or_none(RUNNING)
    return max(load.requests, int(own)) if load.assumed and own else load.requests


def _choice(found: Margins, requests: int, each: int, ranks: int) -> Choice:
    certain = found.certain
    if certain is not None and _room(certain, each, ranks) >= requests:
        return certain
    return found.best


def _room(choice: Choice, each: int, ranks: int) -> int:
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
