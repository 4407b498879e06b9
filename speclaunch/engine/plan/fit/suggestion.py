"""Suggests changes that make a deployment fit with the smallest loss (`suggest_fit`).

Returns alternatives if no setting suffices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from speclaunch.core import SpeclaunchError
from speclaunch.engine.plan.budget import Fit, MemoryBudget, MemoryUse, RankBudget
from speclaunch.engine.plan.fit.knobs import FRACTION
from speclaunch.engine.plan.fit.limits import DEFAULT_LIMITS, FitLimits, Steppable
from speclaunch.engine.plan.fit.predict import (
    BudgetOf,
    Choice,
    Margins,
    PlanWith,
    Predictor,
    margins,
    tightest,
)
from speclaunch.engine.plan.fit.price import LEAST_EACH, WHY, cost
from speclaunch.engine.plan.fit.search import OBJECTIVE, FitCandidate, Search, best, levels
from speclaunch.engine.plan.memory.budget import budget as work_out
from speclaunch.engine.plan.plan import Plan, UnknownValueError
from speclaunch.engine.plan.topics import parallel
from speclaunch.engine.plan.topics.memory import draft_in_pool

_GIB = 1 << 30
_MOST_RANKS = 16
_FP8 = 80
"""Minimum compute capability for 8-bit weights (sglang 0.5.23 layers/quantization/fp8.py:329)."""


class Alternative(Struct, frozen=True):
    """A change other than lowering the settings that recovery may lower, such as more GPUs."""

    what: str
    changes: Mapping[str, Any]
    """Server arguments; empty for a different GPU or more main memory."""
    verdict: str
    """The budget's verdict."""
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
    """Return the alternative with its verdict; None if unknown or unsupported."""
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
    """Return the bytes of everything except the KV cache and free memory."""
    idle = {MemoryUse.FREE, MemoryUse.TARGET_KV, MemoryUse.DRAFT_KV}
    return sum(share.size.bytes for share in rank.shares if share.use not in idle)


def binding(predictor: Predictor, changes: Mapping[str, Any]) -> str:
    """Return the reason why no fraction works for these changes, with the conflicting sizes."""
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
        f" need mem_fraction_static above {bounds.low:.3f}, but {', '.join(rest) or 'the rest'}"
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
"""Growth of the KV cache that makes a different fraction worth reporting."""


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
    """Total loss from the changes, as text."""
    alternatives: tuple[Alternative, ...] = ()
    """Alternatives if nothing fits."""
    margins: Margins | None = None
    """Margins of the fraction after the changes."""

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Changes as server arguments."""
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
    """Return the cheapest settings that are FITS or TIGHT as `fit` requires; None if none exist.

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
    """Return a suggestion for a plan that fits, but would benefit from a different fraction."""
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
    """Return a note on the KV tokens that the likely fraction gains; empty if not worthwhile."""
    if best is None or before.tokens is None or best.tokens <= before.tokens * _WORTH_IT:
        return ""
    return f"; {FRACTION}={best.fraction:.3f} is likely to work too, with {best.tokens:,} KV tokens"


def _doubt(before: MemoryBudget) -> str | None:
    """Return a warning if the pool holds too few tokens per request; None otherwise."""
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
    """Return a note on the number of full-context requests that fit."""
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
