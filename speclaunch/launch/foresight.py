"""A start that is predicted to fail: what to begin with instead.

The budget says that a deployment fails only where it would with every estimate at its least. To
load weights for minutes and then run into that tells nobody anything new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from speclaunch.errors import SpeclaunchError
from speclaunch.launch.attempt import Rung
from speclaunch.plan.budget import Fit, MemoryBudget
from speclaunch.plan.fit.predict import BudgetOf, PlanWith
from speclaunch.plan.fit.price import say_all
from speclaunch.plan.fit.suggestion import SETTINGS, Suggestion, suggest
from speclaunch.plan.memory.budget import budget as work_out
from speclaunch.plan.plan import UnknownValueError
from speclaunch.recipe.values import RecoveryPolicy
from speclaunch.record import record

if TYPE_CHECKING:
    from speclaunch.recipe.schema import Recovery

_NAME = "start with what is predicted to fit"


@record
class Foresight:
    """A failure that is predicted for the settings as they are written."""

    budget: MemoryBudget
    suggestion: Suggestion

    @property
    def why(self) -> str:
        """Where it fails, with the numbers."""
        phase = self.budget.phase.value if self.budget.phase is not None else "start"
        return f"it is predicted to fail at '{phase}': {self.budget.why}"

    @property
    def rung(self) -> Rung | None:
        """The settings to begin with; None where none are predicted to fit."""
        found = self.suggestion
        if not found.fit.may_serve or not found.changes:
            return None
        return Rung(_NAME, dict(found.arguments), self.why, found.cost, found.after)

    @property
    def help(self) -> str:
        """What to do about it."""
        rung = self.rung
        if rung is not None:
            fits = "fit" if self.suggestion.fit is Fit.FITS else "fit only in the best case"
            return f"{say_all(rung.changes)} is predicted to {fits}"
        fitting = next((one for one in self.suggestion.alternatives if one.fits), None)
        if fitting is not None:
            return f"{fitting.what}: {fitting.verdict}"
        return f"no settings are predicted to fit: {self.suggestion.why}"


def foresee(
    recovery: Recovery, plan_with: PlanWith, budget: BudgetOf | None = None
) -> Foresight | None:
    """The failure that is predicted for the settings as they are; None where none is, or nobody can
    tell. What is suggested keeps to what `recovery` lets be stepped, where it is on."""
    try:
        plan = plan_with({})
        found = plan.memory if budget is None else budget(plan)
        if found.fit is not Fit.FAILS:
            return None
        off = recovery.policy is RecoveryPolicy.OFF
        suggestion = suggest(
            plan_with, budget=budget or work_out, settings=SETTINGS if off else recovery
        )
    except (SpeclaunchError, UnknownValueError):
        return None
    return Foresight(found, suggestion)
