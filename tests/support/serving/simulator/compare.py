"""Many random deployments that fail at first: our ladder against the documents' advice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from speclaunch.deployments.recipe.schema import Recovery
from speclaunch.engine.plan.budget import MemoryBudget
from speclaunch.engine.plan.memory.budget import budget as work_out
from speclaunch.engine.plan.plan import Plan
from tests.support.serving.simulator.cases import Case, random_case
from tests.support.serving.simulator.engine import Start, start
from tests.support.serving.simulator.walks import (
    Climb,
    climb,
    documents,
    gentle_documents,
    most_tokens,
    smallest,
    walk_documents,
)


@dataclass(frozen=True)
class Result:
    """One deployment under each ladder."""

    case: Case
    first: Start
    best: Start | None
    """With the recipe's own settings and the best fraction, else with everything at its floor;
    None where nothing serves."""
    ours: Climb
    documents: Climb
    gentle: Climb

    @property
    def feasible(self) -> bool:
        return self.best is not None

    def kept(self, one: Climb) -> float | None:
        """Share of the best KV tokens that were kept."""
        if one.served is None or self.best is None:
            return None
        return one.served.tokens / self.best.tokens


def failing_cases(count: int, first: int = 0) -> Iterator[tuple[Case, Start]]:
    """Random deployments that fail at first, the same each time."""
    number, found = first, 0
    while found < count:
        case = random_case(number)
        run = start(case, case.planner()({}))
        number += 1
        if not run.served:
            found += 1
            yield case, run


def compare(
    count: int,
    settings: Recovery,
    first: int = 0,
    budget: Callable[[Plan], MemoryBudget] = work_out,
) -> list[Result]:
    """The results of so many deployments."""
    results = []
    for case, run in failing_cases(count, first):
        best = most_tokens(case, {}) or most_tokens(case, smallest(case, settings))
        results.append(
            Result(
                case,
                run,
                best,
                climb(case, settings, budget),
                walk_documents(case, documents(case)),
                walk_documents(case, gentle_documents(case)),
            )
        )
    return results


@dataclass(frozen=True)
class Summary:
    """The figures of one ladder over the feasible deployments."""

    name: str
    feasible: int
    never: int
    median: float
    high: float
    """95th percentile of restarts; infinite where more than one in twenty never served."""
    worst: float
    kept: float
    kept_low: float


def summary(name: str, results: Sequence[Result], of: Callable[[Result], Climb]) -> Summary:
    """Restarts until serving; one that never serves counts as more than any number."""
    feasible = [result for result in results if result.feasible]
    restarts = sorted(
        of(result).restarts if of(result).served is not None else float("inf")
        for result in feasible
    )
    kept = sorted(
        share for result in feasible if (share := result.kept(of(result))) is not None
    ) or [0.0]
    return Summary(
        name,
        len(feasible),
        sum(of(result).served is None for result in feasible),
        median(restarts),
        restarts[min(len(restarts) - 1, int(0.95 * len(restarts)))],
        restarts[-1],
        median(kept),
        kept[int(0.05 * len(kept))],
    )


def explained(results: Sequence[Result]) -> list[int]:
    """Starts until the infeasible were given up, with a reason other than an unknown cause or the
    limit of attempts."""
    return sorted(
        result.ours.starts
        for result in results
        if not result.feasible
        and (stop := result.ours.stop) is not None
        and "no setting is changed" not in stop.why
        and "the limit of recovery.max_attempts" not in stop.why
    )
