"""The whole ladder before a start: what would be tried, if each start ran out of memory."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from speclaunch.launch.attempt import Attempt, Rung
from speclaunch.launch.diagnosis.interface import Cause, Diagnosis, Direction
from speclaunch.launch.ladder.ladder import Ladder, Stop
from speclaunch.launch.log.marks import Phase
from speclaunch.plan.budget import Fit, MemoryBudget, MemoryPhase
from speclaunch.plan.fit.knobs import FRACTION
from speclaunch.plan.fit.predict import BudgetOf, PlanWith, Predictor
from speclaunch.plan.memory.budget import budget as work_out

if TYPE_CHECKING:
    from speclaunch.recipe.schema import Recovery

_LOWER = Cause(
    "forecast-out-of-memory",
    "out of memory",
    "A start that runs out of memory outside the KV cache.",
    "",
    memory=True,
    directions=MappingProxyType({FRACTION: Direction.LOWER}),
)
_RAISE = Cause(
    "forecast-no-room-for-the-pool",
    "no room for the KV cache",
    "A start whose mem_fraction_static leaves nothing for the KV cache.",
    "",
    memory=True,
    directions=MappingProxyType({FRACTION: Direction.RAISE}),
)
_PHASES = {
    MemoryPhase.DRAFT_WEIGHTS: Phase.DRAFT_WEIGHTS,
    MemoryPhase.KV_POOL: Phase.KV_POOL,
    MemoryPhase.GRAPHS: Phase.GRAPHS,
    MemoryPhase.SERVING: Phase.READY,
}


def forecast(
    settings: Recovery, plan_with: PlanWith, budget: BudgetOf = work_out
) -> tuple[Rung, ...]:
    """The rungs in order, with what the budget predicts of each.

    Each start is taken to fail as the budget says, and where it says that it fits, for want of
    room while graphs are captured: so the ladder is as long as it can become.
    """
    return tuple(_climb(settings, plan_with, budget)[0])


def outlook(
    settings: Recovery, plan_with: PlanWith, budget: BudgetOf = work_out
) -> tuple[tuple[Rung, ...], Stop]:
    """The rungs, and how the ladder ends after the last."""
    rungs, stop = _climb(settings, plan_with, budget)
    return tuple(rungs), stop


def _climb(settings: Recovery, plan_with: PlanWith, budget: BudgetOf) -> tuple[list[Rung], Stop]:
    ladder = Ladder(settings, plan_with, budget)
    predictor = Predictor(plan_with, budget)
    attempts: list[Attempt] = []
    rungs: list[Rung] = []
    changes: Mapping[str, Any] = {}
    while True:
        failed = _failure(predictor.budget(changes))
        rung = rungs[-1] if rungs else None
        attempts.append(Attempt(len(attempts) + 1, changes, rung, diagnosis=failed))
        found = ladder.next(attempts)
        if isinstance(found, Stop):
            return rungs, found
        rungs.append(found)
        changes = {**changes, **found.changes}


def _failure(budget: MemoryBudget) -> Diagnosis:
    fails = budget.fit is Fit.FAILS
    if fails and budget.phase is MemoryPhase.KV_POOL:
        return Diagnosis(Phase.KV_POOL, cause=_RAISE)
    if fails and budget.phase is MemoryPhase.TARGET_WEIGHTS:
        return Diagnosis(Phase.WEIGHTS, cause=_NOTHING)
    phase = _PHASES.get(budget.phase, Phase.GRAPHS) if fails and budget.phase else Phase.GRAPHS
    return Diagnosis(phase, cause=_LOWER)


_NOTHING = Cause(
    "forecast-weights-do-not-fit",
    "the weights do not fit",
    "The target's weights are larger than the memory.",
    "",
    memory=True,
)
