"""`suggest`: what to change so that a deployment fits, with the least loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from speclaunch.plan.budget import Budget, Fit
from speclaunch.plan.fit.alternatives import Alternative, alternatives, binding
from speclaunch.plan.fit.cost import WHY, cost
from speclaunch.plan.fit.knobs import FRACTION
from speclaunch.plan.fit.predict import BudgetOf, PlanWith, Predictor
from speclaunch.plan.fit.price import LEAST_EACH
from speclaunch.plan.fit.search import OBJECTIVE, Candidate, Search, best, levels
from speclaunch.plan.memory.budget import budget as work_out
from speclaunch.plan.memory.margins import Choice, Margins, margins
from speclaunch.recipe.sections import plain_class
from speclaunch.recipe.values import RecoveryPolicy, Steppable
from speclaunch.record import record

if TYPE_CHECKING:
    from speclaunch.recipe.schema import Recovery

_WORTH_IT = 1.05
"""A fraction that gives so much more of a KV cache is worth a word."""
SETTINGS = cast(
    "Recovery", plain_class("Recovery")(policy=RecoveryPolicy.BUDGET, order=tuple(Steppable))
)
"""What may be changed where no recipe says."""


@record
class Suggested:
    """One argument to change: from what it is in effect, to what it should be."""

    name: str
    before: Any
    """The effective value; None where it is not known."""
    value: Any
    why: str
    cost: str


@record
class Suggestion:
    """What fits. `fit` is FITS where the changes (or none) do it, TIGHT where they do it only in
    the best case, FAILS where nothing does, and UNKNOWN where the budget cannot tell."""

    fit: Fit
    why: str
    objective: str
    before: Budget
    changes: tuple[Suggested, ...] = ()
    after: Budget | None = None
    cost: str = ""
    """Of all changes together."""
    alternatives: tuple[Alternative, ...] = ()
    """Where nothing fits: what else would."""
    margins: Margins | None = None
    """Of the fraction, once the changes are made."""

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The changes as server arguments."""
        return {change.name: change.value for change in self.changes}


def suggest(
    plan_with: PlanWith,
    *,
    budget: BudgetOf = work_out,
    settings: Recovery = SETTINGS,
) -> Suggestion:
    """The settings that fit with the least loss, by the budget; tight settings where none fit.

    Never raises for facts that are missing: the suggestion is then UNKNOWN.
    """
    predictor = Predictor(plan_with, budget)
    before = predictor.budget({})
    if before.fit is Fit.UNKNOWN:
        return Suggestion(Fit.UNKNOWN, before.why, OBJECTIVE, before)
    if before.fit is Fit.FITS:
        return _improved(predictor, before, settings)
    for fit in (Fit.FITS, Fit.TIGHT):
        if fit is before.fit:
            why = f"no settings are likely to fit; as written it is tight: {before.why}"
            return Suggestion(fit, why, OBJECTIVE, before, margins=margins(predictor.plan({})))
        found = cheapest(predictor, settings, fit, before.tokens or None)
        if found is not None:
            return _suggestion(predictor, before, found, fit)
    return _nothing(predictor, before, settings)


def cheapest(
    predictor: Predictor,
    settings: Recovery,
    fit: Fit = Fit.FITS,
    asked: int | None = None,
    least_tokens: int = 0,
) -> Candidate | None:
    """Return the cheapest settings with a verdict, FITS or TIGHT, at their largest fraction.

    `asked`: the KV tokens of the recipe, if known; `least_tokens`: fewer are of no use.
    """
    bounds_of = predictor.likely if fit is Fit.FITS else predictor.working
    search = Search(predictor, settings, bounds_of, asked, least_tokens, narrow=0.0)
    return best(search, levels(predictor, {}, settings))


def _nothing(predictor: Predictor, before: Budget, settings: Recovery) -> Suggestion:
    smallest = levels(predictor, {}, settings).smallest()
    others = alternatives(predictor, smallest)
    why = binding(predictor, smallest)
    return Suggestion(Fit.FAILS, why, OBJECTIVE, before, alternatives=others)


def _improved(predictor: Predictor, before: Budget, settings: Recovery) -> Suggestion:
    """What fits as it is, and would be of more use at another fraction."""
    plan = predictor.plan({})
    found = margins(plan)
    doubt = _doubt(before)
    best = None if found is None else found.best
    if doubt is None or best is None or Steppable.FRACTION not in settings.order:
        text = f"it fits as written: {before.why}{_each(before)}{_more(before, best)}"
        if doubt is not None:
            text = f"it fits as written, but {doubt}"
        return Suggestion(Fit.FITS, text, OBJECTIVE, before, margins=found)
    high = min(best.fraction, settings.limits.mem_fraction_static)
    value = int(high * 1000 + 1e-6) / 1000
    after = predictor.budget({FRACTION: value})
    if after.fit is not Fit.FITS or value == before.mem_fraction_static:
        text = f"it fits as written, but {doubt}"
        return Suggestion(Fit.FITS, text, OBJECTIVE, before, margins=found)
    text = cost(plan, predictor.plan({FRACTION: value}), before, after)
    change = Suggested(FRACTION, plan.value_or_none(FRACTION), value, WHY[FRACTION], text)
    why = f"it fits as written, but {doubt}; {FRACTION}={value:g} is likely to work: {after.why}"
    return Suggestion(
        Fit.FITS, f"{why}{_each(after)}", OBJECTIVE, before, (change,), after, text, margins=found
    )


def _more(before: Budget, best: Choice | None) -> str:
    """What the likely fraction would give beyond that."""
    if best is None or before.tokens is None or best.tokens <= before.tokens * _WORTH_IT:
        return ""
    return f"; {FRACTION}={best.fraction:.3f} is likely to work too, with {best.tokens:,} KV tokens"


def _doubt(before: Budget) -> str | None:
    """What is wrong with settings that fit: the pool is of little use."""
    tokens, running = before.tokens, before.running_requests
    if tokens is None or not running or tokens >= running * LEAST_EACH:
        return None
    if before.context_length and tokens >= running * before.context_length:
        return None
    return (
        f"{tokens:,} tokens of KV cache are {tokens // running:,} for each of {running:,} running "
        "requests"
    )


def _each(budget: Budget) -> str:
    """How many requests of the whole context that is."""
    number, context = budget.requests_at_context, budget.context_length
    if number is None or context is None:
        return ""
    many = "no request" if not number else f"{number:,} request{'s' * (number > 1)}"
    return f"; {many} of the full context ({context:,} tokens) at once"


def _suggestion(predictor: Predictor, before: Budget, found: Candidate, fit: Fit) -> Suggestion:
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
