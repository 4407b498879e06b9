"""The order of settings, one by one: where no budget is known, or none is wanted."""

from __future__ import annotations

from typing import Any

from speclaunch.deployments.recipe.schema import Floors, Recovery, Steppable
from speclaunch.serving.launch.diagnosis.interface import Cause
from speclaunch.serving.launch.ladder import Ladder
from speclaunch.serving.launch.planner import Attempt, LadderEnd, Rung
from tests.support.serving.launch.ladder.deployments import (
    CAPTURE,
    NO_POOL,
    TREE,
    Arithmetic,
    failed,
    planner,
)

BUDGET = Recovery(policy="budget", order=tuple(Steppable), max_attempts=30)
DOCUMENTS = Recovery(
    policy="order",
    max_attempts=30,
    floors=Floors(
        mem_fraction_static=0.5,
        cuda_graph_max_bs_decode=4,
        speculative_num_steps=3,
        max_running_requests=4,
    ),
    minimal={
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4,
        "cuda_graph_max_bs": 2,
        "mem_fraction_static": 0.5,
        "max_running_requests": 4,
    },
)


def climb(
    settings: Recovery, args: dict[str, Any], causes: list[Cause] | Cause
) -> tuple[list[Rung], LadderEnd | None]:
    """The rungs when each start fails with the next cause, or all with the same."""
    ladder = Ladder(settings, planner(args), Arithmetic(known=False))
    attempts: list[Attempt] = []
    rungs: list[Rung] = []
    changes: dict[str, Any] = {}
    listed = [causes] * 40 if isinstance(causes, Cause) else causes
    for number, why in enumerate(listed, 1):
        attempts.append(failed(number, why, dict(changes)))
        found = ladder.next(attempts)
        if isinstance(found, LadderEnd):
            return rungs, found
        rungs.append(found)
        changes |= found.changes
    return rungs, None


def test_the_documents_order() -> None:
    rungs, end = climb(DOCUMENTS, {**TREE, "mem_fraction_static": 0.7}, CAPTURE)
    assert [dict(rung.changes) for rung in rungs] == [
        {"mem_fraction_static": 0.6},
        {"mem_fraction_static": 0.5},
        {"cuda_graph_max_bs_decode": 4},
        {
            "speculative_num_steps": 3,
            "speculative_eagle_topk": 1,
            "speculative_num_draft_tokens": 4,
        },
        {"max_running_requests": 4},
        {"cuda_graph_max_bs_decode": 2},
    ]
    assert end is not None
    assert end.why.endswith("no setting is left to try")


def test_raised_where_the_engine_says_raise() -> None:
    rungs, _ = climb(DOCUMENTS, {**TREE, "mem_fraction_static": 0.6}, [NO_POOL, NO_POOL])
    assert [dict(rung.changes) for rung in rungs] == [
        {"mem_fraction_static": 0.7},
        {"mem_fraction_static": 0.8},
    ]


def test_raising_ends_at_the_limit() -> None:
    rungs, end = climb(BUDGET, {**TREE, "mem_fraction_static": 0.8}, NO_POOL)
    assert rungs[-1].changes["mem_fraction_static"] == BUDGET.limits.mem_fraction_static
    assert end is not None
    assert all(set(rung.changes) == {"mem_fraction_static"} for rung in rungs)


def test_between_too_low_and_too_high_it_bisects() -> None:
    rungs, _ = climb(BUDGET, {**TREE, "mem_fraction_static": 0.6}, [NO_POOL, CAPTURE, NO_POOL])
    fractions = [rung.changes["mem_fraction_static"] for rung in rungs]
    assert fractions == [0.7, 0.65, 0.675]


def test_where_both_meet_another_setting_is_stepped() -> None:
    causes = [NO_POOL, CAPTURE, NO_POOL, CAPTURE, NO_POOL, CAPTURE, NO_POOL]
    rungs, _ = climb(BUDGET, {**TREE, "mem_fraction_static": 0.6}, causes)
    other = [rung for rung in rungs if set(rung.changes) - {"mem_fraction_static"}]
    assert other
    assert "cuda_graph_max_bs_decode" in other[0].changes


def test_an_unknown_fraction_is_stepped_all_the_same() -> None:
    found = Ladder(BUDGET, planner(TREE, hardware="h100"), Arithmetic(known=False)).next(
        [failed(1, NO_POOL, mem_fraction_static=0.62)]
    )
    assert isinstance(found, Rung)
    assert found.changes["mem_fraction_static"] == 0.72


def test_the_minimal_configuration_is_not_below_what_was_too_low() -> None:
    """0.5 of the documents was shown to be too low for the weights."""
    args = {**TREE, "mem_fraction_static": 0.7}
    rungs, _ = climb(DOCUMENTS, args, [NO_POOL] + [CAPTURE] * 30)
    changes: dict[str, Any] = {}
    for rung in rungs:
        changes |= rung.changes
        assert changes.get("mem_fraction_static", 0.7) >= 0.7


def test_a_budget_is_not_asked_where_the_order_is_wanted() -> None:
    plan_with = planner({**TREE, "mem_fraction_static": 0.9})
    found = Ladder(DOCUMENTS, plan_with, Arithmetic()).next([failed(1, CAPTURE)])
    assert isinstance(found, Rung)
    assert dict(found.changes) == {"mem_fraction_static": 0.8}
    assert found.predicted is not None  # but what it says is told


def test_without_a_budget_other_settings_have_their_turn_before_the_pool_is_gone() -> None:
    rungs, _ = climb(BUDGET, {**TREE, "mem_fraction_static": 0.9}, [CAPTURE] * 5)
    assert [dict(rung.changes) for rung in rungs] == [
        {"mem_fraction_static": 0.8},
        {"mem_fraction_static": 0.7},
        {"cuda_graph_max_bs_decode": 6},
        {"mem_fraction_static": 0.6},
        {"mem_fraction_static": 0.5},
    ]
    assert rungs[0].cost == "a smaller KV cache (by an unknown amount)"
