"""Each decision of the ladder with a budget."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from speclaunch.deployments.recipe.schema import Floors, Recovery, RecoveryLimits, Steppable
from speclaunch.engine.plan.budget import MemoryUse
from speclaunch.serving.launch.diagnosis.causes import BY_NAME
from speclaunch.serving.launch.diagnosis.interface import Cause
from speclaunch.serving.launch.engine_log import Phase
from speclaunch.serving.launch.ladder import Ladder, outlook
from speclaunch.serving.launch.planner import Attempt, LadderEnd, Rung
from tests.support.serving.launch.ladder.deployments import (
    CAPTURE,
    CHAIN,
    DTYPE,
    EXHAUSTED,
    FORWARD,
    GIB,
    NO_POOL,
    POOL,
    SLOTS,
    TREE,
    WEIGHTS,
    Arithmetic,
    failed,
    planner,
)

WARM_UP = BY_NAME["warm-up-does-not-fit-pool"]
SETTINGS = Recovery(policy="budget", order=tuple(Steppable), max_attempts=8)
TIGHT = {**CHAIN, "mem_fraction_static": 0.97, "chunked_prefill_size": 8192}
"""8 GiB of activations and 0.6 of graphs on 80 GiB: up to 0.893 works, from 0.21 on."""


def ladder(args: dict[str, Any], settings: Recovery = SETTINGS, **budget: Any) -> Ladder:
    return Ladder(settings, planner(args), Arithmetic(**budget))


def rung(found: Rung | LadderEnd) -> Rung:
    assert isinstance(found, Rung), found
    return found


def stop(found: Rung | LadderEnd) -> LadderEnd:
    assert isinstance(found, LadderEnd), found
    return found


def test_too_high_is_lowered_to_what_is_predicted_to_fit_and_nothing_else_changes() -> None:
    found = rung(ladder(TIGHT).next([failed(1, CAPTURE)]))
    assert list(found.changes) == ["mem_fraction_static"]
    assert 0.85 < found.changes["mem_fraction_static"] < 0.93
    assert found.name == "lower mem_fraction_static"
    assert "KV tokens" in found.cost
    assert found.predicted is not None
    assert "0.97 → " in found.why


def test_too_low_is_raised_above_the_number_in_the_message() -> None:
    args = {**TIGHT, "mem_fraction_static": 0.2}
    attempt = failed(1, NO_POOL, mem_fraction_static_above=0.6)
    found = rung(ladder(args).next([attempt]))
    assert list(found.changes) == ["mem_fraction_static"]
    assert found.changes["mem_fraction_static"] > 0.6
    assert found.name == "raise mem_fraction_static"


def test_the_number_in_the_message_moves_the_whole_prediction() -> None:
    """The weights take 0.5 more of the memory than was thought: of the range 0.21 to 0.89 only
    0.71 and above is left, which is where the next start has to be."""
    args = {**TIGHT, "mem_fraction_static": 0.4}
    found = rung(ladder(args).next([failed(1, NO_POOL, mem_fraction_static_above=0.7)]))
    assert 0.71 <= found.changes["mem_fraction_static"] <= 0.93


def test_both_directions_leave_what_is_between() -> None:
    args = {**TIGHT, "mem_fraction_static": 0.4}
    attempts = [
        failed(1, NO_POOL, mem_fraction_static_above=0.6),
        failed(2, CAPTURE, {"mem_fraction_static": 0.8}),
    ]
    found = rung(ladder(args).next(attempts))
    fraction = found.changes["mem_fraction_static"]
    assert 0.6 < fraction < 0.8


@pytest.mark.thorough
def test_both_directions_at_the_same_place_step_another_setting() -> None:
    args = {**TIGHT, **TREE, "mem_fraction_static": 0.7}
    attempts = [
        failed(1, NO_POOL, mem_fraction_static_above=0.75),
        failed(2, CAPTURE, {"mem_fraction_static": 0.765}),
    ]
    found = rung(ladder(args).next(attempts))
    assert set(found.changes) - {"mem_fraction_static"}
    assert found.changes.get("mem_fraction_static", 0.765) > 0.75


def test_a_failure_that_was_not_predicted_makes_the_next_start_more_careful() -> None:
    args = {**TIGHT, "mem_fraction_static": 0.85}
    first = rung(ladder(args).next([failed(1, CAPTURE)]))
    predicted = 1 - (8 + 0.6) / 80
    assert first.changes["mem_fraction_static"] < 0.85 < predicted
    attempts = [failed(1, CAPTURE), failed(2, CAPTURE, first.changes)]
    second = rung(ladder(args).next(attempts))
    assert left_free(second) > left_free(first) + 4 * GIB


def left_free(one: Rung) -> int:
    assert one.predicted is not None
    (rank,) = one.predicted.ranks
    return (
        sum(share.size.bytes for share in rank.shares if share.use is MemoryUse.FREE)
        - rank.short_bytes
    )


def test_nothing_is_touched_where_memory_is_not_the_cause() -> None:
    found = stop(ladder(TIGHT).next([failed(1, DTYPE)]))
    assert "dtype-mismatch" in found.why
    assert found.why.endswith("not a memory problem, so no setting is changed")


def test_nothing_is_touched_where_the_cause_is_not_known() -> None:
    assert "the cause is unknown" in stop(ladder(TIGHT).next([failed(1, None)])).why
    assert "cause is unknown" in stop(ladder(TIGHT).next([Attempt(1)])).why


def test_weights_that_do_not_fit_are_told_with_what_else_would() -> None:
    found = stop(ladder(TIGHT, weights=200.0).next([failed(1, WEIGHTS, phase=Phase.WEIGHTS)]))
    assert found.why.startswith("weights-do-not-fit: ")


def test_off_fails_at_once() -> None:
    found = stop(ladder(TIGHT, Recovery(policy="off")).next([failed(1, CAPTURE)]))
    assert "off" in found.why


def test_an_attempt_is_needed() -> None:
    with pytest.raises(ValueError, match="no attempt"):
        ladder(TIGHT).next([])


def test_max_attempts() -> None:
    settings = SETTINGS.model_copy(update={"max_attempts": 2})
    attempts = [failed(1, CAPTURE), failed(2, CAPTURE, {"mem_fraction_static": 0.8})]
    assert isinstance(ladder(TIGHT, settings).next(attempts[:1]), Rung)
    assert "2 attempts failed" in stop(ladder(TIGHT, settings).next(attempts)).why


def test_the_limit_is_kept() -> None:
    settings = SETTINGS.model_copy(update={"limits": RecoveryLimits(mem_fraction_static=0.5)})
    args = {**TIGHT, "mem_fraction_static": 0.15}
    found = rung(ladder(args, settings).next([failed(1, NO_POOL)]))
    assert found.changes["mem_fraction_static"] <= 0.5


def test_a_limit_that_ends_the_search_is_named() -> None:
    settings = SETTINGS.model_copy(update={"limits": RecoveryLimits(mem_fraction_static=0.2)})
    attempt = failed(1, NO_POOL, mem_fraction_static_above=0.201)
    found = stop(ladder({**TIGHT, "mem_fraction_static": 0.2}, settings).next([attempt]))
    assert "recovery.limits.mem_fraction_static is 0.2" in found.why
    assert found.help == "set recovery.limits.mem_fraction_static above 0.201"


@pytest.mark.thorough
def test_floors_are_kept() -> None:
    floors = Floors(max_running_requests=16, cuda_graph_max_bs_decode=8, chunked_prefill_size=4096)
    settings = SETTINGS.model_copy(update={"floors": floors})
    rungs, _ = outlook(settings, planner({**TIGHT, **TREE}), Arithmetic(weights=60.0))
    changes: dict[str, Any] = {}
    for one in rungs:
        changes |= one.changes
        assert changes.get("max_running_requests", 16) >= 16
        assert changes.get("cuda_graph_max_bs_decode", 8) >= 8
        assert changes.get("chunked_prefill_size", 4096) >= 4096


def test_only_settings_of_the_order_are_stepped() -> None:
    settings = SETTINGS.model_copy(update={"order": (Steppable.GRAPHS,)})
    args = {**TREE, "mem_fraction_static": 0.75, "chunked_prefill_size": 8192}
    found = rung(ladder(args, settings).next([failed(1, CAPTURE)]))
    assert set(found.changes) == {"cuda_graph_max_bs_decode"}


def test_infeasible_is_explained_with_both_sides_and_what_else_would() -> None:
    found = stop(ladder({**TIGHT, **TREE}, weights=79.0).next([failed(1, NO_POOL)]))
    assert found.why.startswith("no setting that recovery may change makes the deployment fit: ")
    assert "79.0 GiB" in found.why
    assert "mem_fraction_static above" in found.why
    assert "below" in found.why


@pytest.mark.thorough
@pytest.mark.parametrize("why", [WARM_UP, BY_NAME["pool-exhausted"]], ids=lambda one: one.name)
def test_a_limit_that_the_diagnosis_names_is_raised_and_nothing_else(why: Cause) -> None:
    args = {**CHAIN, "mem_fraction_static": 0.8, "max_total_tokens": 8}
    attempts = [failed(1, why)]
    found = rung(ladder(args).next(attempts))
    assert found.changes == {"max_total_tokens": 4096}
    assert found.name == "raise max_total_tokens"
    assert "max_total_tokens 8 → 4096" in found.why
    attempts.append(failed(2, why, found.changes))
    assert rung(ladder(args).next(attempts)).changes == {"max_total_tokens": 8192}
    full = replace(failed(2, why, found.changes), tokens=900)  # the memory holds no more
    again = rung(ladder(args).next([attempts[0], full]))
    assert "mem_fraction_static" in again.changes and "max_total_tokens" not in again.changes
    order = tuple(one for one in Steppable if one is not Steppable.POOL)
    bound = ladder(args, SETTINGS.model_copy(update={"order": order}))
    stopped = stop(bound.next(attempts[:1]))
    assert "recovery may not change max_total_tokens" in stopped.why
    assert stopped.help == why.remedy
    unset = rung(ladder({**args, "max_total_tokens": None}).next(attempts[:1]))
    assert "max_total_tokens" not in unset.changes


@pytest.mark.thorough
def test_each_step_moves_a_setting_that_the_cause_names() -> None:
    """Of the causes with the same directions one."""
    tree = {"speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens"}
    known = {str(one.directions): one for one in BY_NAME.values() if one.memory and one.directions}
    steps = ladder({**TIGHT, **TREE, "mem_fraction_static": 0.5})
    wrong = []
    for why in known.values():
        named = {*why.directions, *(tree if tree & why.directions.keys() else ())}
        attempts = [failed(1, why, phase=Phase.GRAPHS)]
        first = steps.next(attempts)
        found = [first]
        if isinstance(first, Rung):
            attempts.append(failed(2, why, dict(first.changes), Phase.GRAPHS))
            found.append(steps.next(attempts))
        wrong += [
            (why.name, one.changes)
            for one in found
            if isinstance(one, Rung) and not named & one.changes.keys()
        ]
    assert not wrong


def test_a_cause_whose_settings_recovery_does_not_change_ends_in_its_own_remedy() -> None:
    found = stop(ladder(TIGHT).next([failed(1, BY_NAME["host-cache-too-large"])]))
    assert found.why.endswith("recovery has no further value for hicache_ratio, hicache_size")
    assert found.help == BY_NAME["host-cache-too-large"].remedy


def test_a_cause_that_names_other_settings_steps_those() -> None:
    attempt = failed(1, SLOTS)
    found = rung(ladder({**TIGHT, "mem_fraction_static": 0.8}).next([attempt]))
    assert found.changes["max_running_requests"] < 48


def test_a_pool_that_was_exhausted_grows_clearly() -> None:
    args = {**CHAIN, "mem_fraction_static": 0.3, "chunked_prefill_size": 8192}
    found = rung(ladder(args).next([failed(1, EXHAUSTED)]))
    before = Arithmetic()(planner(args)({})).tokens
    assert found.predicted is not None
    assert before is not None
    assert (found.predicted.tokens or 0) >= 1.5 * before


def test_out_of_memory_after_it_served_lowers() -> None:
    found = rung(ladder(TIGHT).next([failed(1, FORWARD)]))
    assert found.changes["mem_fraction_static"] < 0.97


def test_running_requests_are_kept_before_draft_depth() -> None:
    """40 GiB of graphs for the large tree: with all requests kept, the tree gives way."""
    args = {**TREE, "mem_fraction_static": 0.95, "max_running_requests": 48}
    budget = {"weights": 50.0, "graph_mib": 12.0}
    found = rung(ladder(args, **budget).next([failed(1, CAPTURE)]))
    assert "max_running_requests" not in found.changes
    assert {"speculative_num_draft_tokens", "cuda_graph_max_bs_decode"} & set(found.changes)


def test_a_failed_attempt_without_memory_in_between_does_not_count_as_evidence() -> None:
    attempts = [failed(1, CAPTURE), replace(failed(2, DTYPE), number=2), failed(3, CAPTURE)]
    assert isinstance(ladder(TIGHT).next(attempts), Rung)


@pytest.mark.thorough
def test_the_forecast_is_the_whole_ladder_with_predictions() -> None:
    rungs, end = outlook(SETTINGS, planner({**TIGHT, **TREE}), Arithmetic())
    assert len(rungs) >= 2
    assert all(one.predicted is not None and one.why and one.cost for one in rungs)
    assert end.why


def test_up_to_0_5_13_arguments_keep_the_newest_names() -> None:
    plan_with = planner({**TREE, "mem_fraction_static": 0.97}, version="0.5.10.post1")
    found = Ladder(SETTINGS, plan_with, Arithmetic(weights=60.0)).next([failed(1, CAPTURE)])
    named = set(rung(found).changes)
    assert "cuda_graph_max_bs" not in named
    plan_with(rung(found).changes)  # and the version at hand can be told


@pytest.mark.thorough
def test_a_pool_that_the_memory_is_not_there_for_only_gets_smaller() -> None:
    """Graphs and chunks come after it: to step them would cost, and free nothing."""
    args = {**CHAIN, "mem_fraction_static": 0.6}
    steps = ladder(args)
    attempts = [failed(1, POOL, phase=Phase.WEIGHTS)]
    fractions = [0.6]
    for number in range(2, 5):
        found = rung(steps.next(attempts))
        assert list(found.changes) == ["mem_fraction_static"]
        fractions.append(found.changes["mem_fraction_static"])
        attempts.append(failed(number, POOL, found.changes, phase=Phase.WEIGHTS))
    pools = [fraction - 0.21 for fraction in fractions]
    assert all(later < 0.7 * earlier for earlier, later in pairwise(pools))
