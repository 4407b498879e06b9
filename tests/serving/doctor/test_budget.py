"""The memory budget among the doctor's lines."""

from __future__ import annotations

from msgspec.structs import replace

from speclaunch.engine.plan.budget import Fit, MemoryBudget
from speclaunch.serving.doctor.checks.machine import check_budget
from speclaunch.serving.doctor.facts import CheckState
from tests.support.loops import rows
from tests.support.serving.doctor.helpers import HEALTHY, TARGET


@rows(
    "found, state, said, why",
    [
        (
            MemoryBudget(Fit.FITS, "12 tokens", notes=("tight",)),
            CheckState.OK,
            "r fits: 12 tokens",
            "tight",
        ),
        (
            MemoryBudget(Fit.TIGHT, "2 GiB missing in all but the best case"),
            CheckState.WARNING,
            "r is tight: 2 GiB missing in all but the best case",
            "",
        ),
        (
            MemoryBudget(Fit.FAILS, "2 GiB missing"),
            CheckState.WARNING,
            "r does not fit: 2 GiB missing",
            "",
        ),
        (
            MemoryBudget(Fit.UNKNOWN, "", unknown=("the target is not known", "so is the draft")),
            CheckState.UNKNOWN,
            "the memory use of the recipe is unknown",
            "the target is not known; so is the draft",
        ),
    ],
)
def test_the_verdict(found: MemoryBudget, state: CheckState, said: str, why: str) -> None:
    (line,) = check_budget(replace(HEALTHY, target=replace(TARGET, budget=found)))
    assert (line.state, line.found, line.why) == (state, said, why)
    assert line.fix == ("speclaunch plan recipe=r --fit" if state is CheckState.WARNING else None)


def test_without_a_recipe_there_is_none() -> None:
    assert not list(check_budget(replace(HEALTHY, target=None)))
    assert not list(check_budget(replace(HEALTHY, target=TARGET)))


def test_a_recipe_of_ones_own_is_named_by_its_path() -> None:
    target = replace(TARGET, called="mine/r.yaml", budget=MemoryBudget(Fit.FAILS, "2 GiB missing"))
    (line,) = check_budget(replace(HEALTHY, target=target))
    assert line.fix == "speclaunch plan recipe=mine/r.yaml --fit"
