"""Climbs: our ladder, and the documents' advice taken word for word."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from speclaunch.deployments.recipe.load import fit_limits
from speclaunch.deployments.recipe.schema import Recovery
from speclaunch.engine.plan.budget import MemoryBudget, Steppable
from speclaunch.engine.plan.fit_predictor import steps_down
from speclaunch.engine.plan.plan import Plan
from speclaunch.serving.launch.diagnosis.diagnose import diagnose
from speclaunch.serving.launch.ladder import Ladder
from speclaunch.serving.launch.planner import Attempt, LadderEnd
from tests.support.serving.simulator.cases import Case
from tests.support.serving.simulator.engine import Start, start, with_fraction


@dataclass(frozen=True)
class Climb:
    """What became of a deployment that failed at first."""

    starts: int
    """All starts of the engine."""
    served: Start | None
    changes: Mapping[str, Any]
    stop: LadderEnd | None = None

    @property
    def restarts(self) -> int:
        return self.starts - 1


def climb(case: Case, settings: Recovery, budget: Callable[[Plan], MemoryBudget]) -> Climb:
    """Our ladder, fed with what `diagnose` reads off the engine's log."""
    plan_with = case.planner()
    ladder = Ladder(settings, plan_with, budget)
    attempts: list[Attempt] = []
    changes: dict[str, Any] = {}
    rung = None
    while True:
        run = start(case, plan_with(changes))
        number = len(attempts) + 1
        if run.served:
            return Climb(number, run, changes)
        diagnosis = diagnose(run.lines, version=case.version, exit_code=1)
        served = run.phase in ("serve", "traffic")
        attempts.append(Attempt(number, dict(changes), rung, (), served, diagnosis))
        found = ladder.next(attempts)
        if isinstance(found, LadderEnd):
            return Climb(number, None, changes, found)
        rung = found
        changes |= found.changes


def documents(case: Case) -> tuple[dict[str, Any], ...]:
    """The documents' steps, each on top of those before: the fraction they name, the two sizes of
    graphs, the smaller tree, four requests; that is their minimal configuration in the end."""
    steps: list[dict[str, Any]] = [
        {"mem_fraction_static": 0.5},
        {"cuda_graph_max_bs_decode": 4},
        {"cuda_graph_max_bs_decode": 2},
    ]
    if case.draft is not None:
        steps.append(
            {
                "speculative_num_steps": 3,
                "speculative_eagle_topk": 1,
                "speculative_num_draft_tokens": 4,
            }
        )
    steps.append({"max_running_requests": 4})
    return tuple(steps)


def gentle_documents(case: Case) -> tuple[dict[str, Any], ...]:
    """The same, with the fraction lowered by 0.1 at a time down to what the documents name."""
    fraction = float(case.planner()({}).value("mem_fraction_static"))
    steps = []
    while fraction - 0.1 > 0.5:
        fraction = round(fraction - 0.1, 3)
        steps.append({"mem_fraction_static": fraction})
    return (*steps, *documents(case))


def walk_documents(case: Case, steps: tuple[dict[str, Any], ...]) -> Climb:
    """Start with each step in turn."""
    plan_with = case.planner()
    changes: dict[str, Any] = {}
    number = 0
    for step in ({}, *steps):
        changes |= step
        number += 1
        run = start(case, plan_with(changes))
        if run.served:
            return Climb(number, run, changes)
    return Climb(number, None, changes)


def most_tokens(case: Case, changes: Mapping[str, Any]) -> Start | None:
    """The best that any fraction gives with these settings; None where none serves."""
    plan_with = case.planner()

    def at(thousandths: int) -> Start:
        return start(case, plan_with(with_fraction(changes, thousandths / 1000)))

    for coarse in range(985, 10, -25):
        best = at(coarse)
        if not best.served:
            continue
        low, high = coarse, coarse + 25
        while high - low > 1:
            middle = (low + high) // 2
            tried = at(middle)
            low, high = (middle, high) if tried.served else (low, middle)
            best = tried if tried.served else best
        return best
    return None


def smallest(case: Case, settings: Recovery) -> dict[str, Any]:
    """Everything that may be stepped at its floor."""
    plan = case.planner()({})
    changes: dict[str, Any] = {}
    limits = fit_limits(settings)
    for knob in Steppable:
        steps = steps_down(plan, knob, limits.floors)
        if steps and knob in limits.order:
            changes |= steps[-1]
    return changes
