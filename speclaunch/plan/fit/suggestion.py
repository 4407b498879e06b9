"""`suggest`: what to change so that a deployment fits, with the least loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from speclaunch.plan.budget import Budget, Fit
from speclaunch.plan.fit.alternatives import Alternative, alternatives, binding
from speclaunch.plan.fit.cost import WHY, cost, known
from speclaunch.plan.fit.predict import Bounds, BudgetOf, PlanWith, Predictor
from speclaunch.plan.fit.search import OBJECTIVE, Candidate, Search, best, levels
from speclaunch.plan.memory.budget import budget as work_out
from speclaunch.recipe.schema import Recovery, RecoveryPolicy, Steppable

RESERVE = -0.25
"""The estimates of graphs and activations are the engine's own, which mean to be on the safe side:
so much less (as a share of them) than is likely by them is left free."""
SETTINGS = Recovery(policy=RecoveryPolicy.BUDGET, order=tuple(Steppable))
"""What may be changed where no recipe says."""


@dataclass(frozen=True, slots=True)
class Suggested:
    """One argument to change: from what it is in effect, to what it should be."""

    name: str
    before: Any
    """The effective value; None where it is not known."""
    value: Any
    why: str
    cost: str


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What fits. `fit` is FITS where the changes (or none) do it, FAILS where nothing does, and
    UNKNOWN where the budget cannot tell."""

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

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The changes as server arguments."""
        return {change.name: change.value for change in self.changes}


def suggest(
    plan_with: PlanWith, *, budget: BudgetOf = work_out, settings: Recovery = SETTINGS
) -> Suggestion:
    """The settings that fit with the least loss, by the budget.

    Never raises for facts that are missing: the suggestion is then UNKNOWN.
    """
    predictor = Predictor(plan_with, budget)
    before = predictor.budget({})
    if before.fit is Fit.UNKNOWN:
        return Suggestion(Fit.UNKNOWN, before.why, OBJECTIVE, before)
    if before.fit is Fit.FITS:
        return Suggestion(Fit.FITS, f"nothing needs to change: {before.why}", OBJECTIVE, before)
    steps = levels(predictor, {}, settings)
    found = best(
        Search(
            predictor,
            settings,
            lambda changes: reserved(predictor, changes, RESERVE),
            before.tokens or None,
        ),
        steps,
    )
    if found is None:
        smallest = steps.smallest()
        return Suggestion(
            Fit.FAILS,
            binding(predictor, smallest),
            OBJECTIVE,
            before,
            alternatives=alternatives(predictor, smallest),
        )
    return _suggestion(predictor, before, found)


def reserved(predictor: Predictor, changes: Mapping[str, Any], share: float) -> Bounds | None:
    """The fractions that work when graphs and activations take a share more than is estimated."""
    bounds = predictor.bounds(changes)
    if bounds is None:
        return None
    return Bounds(bounds.low, bounds.high - share * predictor.estimated(changes))


def _suggestion(predictor: Predictor, before: Budget, found: Candidate) -> Suggestion:
    plan = predictor.plan({})
    changes = []
    for name, value in found.changes.items():
        alone = predictor.plan({name: value})
        now = predictor.budget({name: value})
        text = cost(plan, alone, before, now if now.tokens else None)
        changes.append(Suggested(name, known(plan, name), value, WHY.get(name, ""), text))
    total = cost(plan, predictor.plan(found.changes), before, found.budget)
    return Suggestion(
        Fit.FITS, found.budget.why, OBJECTIVE, before, tuple(changes), found.budget, total
    )
