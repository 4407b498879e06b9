"""What holds for every ladder, whatever the engine does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speclaunch.deployments.recipe.schema import Recovery
from speclaunch.engine.plan.budget import Steppable
from speclaunch.engine.plan.fit_predictor import key
from speclaunch.serving.launch.ladder import Ladder
from speclaunch.serving.launch.planner import Attempt, LadderEnd
from tests.support.serving.launch.ladder.deployments import (
    CAPTURE,
    EXHAUSTED,
    FORWARD,
    NO_POOL,
    SLOTS,
    TREE,
    Arithmetic,
    failed,
    planner,
)

CAUSES = st.lists(
    st.sampled_from((CAPTURE, NO_POOL, EXHAUSTED, FORWARD, SLOTS)), min_size=12, max_size=12
)
BUDGETS = st.builds(
    Arithmetic,
    weights=st.floats(1, 100),
    graph_mib=st.floats(0, 8),
    token_mib=st.floats(0, 4),
    known=st.sampled_from((True, True, False)),
)
POLICIES = st.builds(
    Recovery,
    policy=st.sampled_from(("budget", "order")),
    order=st.permutations(list(Steppable)).map(tuple),
    max_attempts=st.just(12),
    minimal=st.sampled_from(({}, {"max_running_requests": 4, "mem_fraction_static": 0.5})),
)
ARGS = st.fixed_dictionaries(
    {"mem_fraction_static": st.floats(0.05, 0.99).map(lambda value: round(value, 3))},
    optional={
        "max_running_requests": st.integers(1, 300),
        "cuda_graph_max_bs_decode": st.integers(1, 300),
        "chunked_prefill_size": st.sampled_from((512, 2048, 8192)),
        "max_total_tokens": st.integers(1000, 10**6),
    },
)


@pytest.mark.thorough
@settings(max_examples=40, deadline=None)
@given(policy=POLICIES, budget=BUDGETS, args=ARGS, causes=CAUSES, tree=st.booleans())
def test_it_ends_never_repeats_and_always_changes_something(
    policy: Recovery, budget: Arithmetic, args: dict[str, Any], causes: list[Any], tree: bool
) -> None:
    plan_with = planner({**(TREE if tree else {}), **args})
    ladder = Ladder(policy, plan_with, budget)
    attempts: list[Attempt] = []
    changes: dict[str, Any] = {}
    configurations = {key(changes)}
    for number, why in enumerate(causes, 1):
        attempts.append(failed(number, why, dict(changes)))
        found = ladder.next(attempts)
        assert found == ladder.next(attempts)  # pure
        if isinstance(found, LadderEnd):
            assert found.why
            return
        before, after = plan_with(changes), plan_with({**changes, **found.changes})
        assert any(
            before.value_or_none(name) != after.value_or_none(name) for name in found.changes
        )
        changes |= found.changes
        assert key(changes) not in configurations
        configurations.add(key(changes))
        assert found.name
        assert found.cost
        fraction = changes.get("mem_fraction_static")
        assert fraction is None or 0 < fraction <= policy.limits.mem_fraction_static
        steps, topk, tokens = (
            after.value_or_none(f"speculative_{name}")
            for name in ("num_steps", "eagle_topk", "num_draft_tokens")
        )
        assert topk != 1 or tokens == steps + 1
    raise AssertionError("it did not end at max_attempts")
