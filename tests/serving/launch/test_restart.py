from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from speclaunch.deployments.recipe.schema import Recovery, Restart
from speclaunch.serving.launch.attempts import RestartPolicy
from speclaunch.serving.launch.session import restarts


def test_each_pause_is_twice_the_last_up_to_a_cap() -> None:
    policy = RestartPolicy(Restart(longest_delay_seconds=5, limit=6))
    assert [policy.ended(float(i)) for i in range(6)] == [1, 2, 4, 5, 5, 5]
    assert isinstance(policy.ended(6.0), str)


def test_endings_that_are_long_past_do_not_count() -> None:
    policy = RestartPolicy(Restart(limit=2, window_seconds=100))
    for now in range(0, 2000, 90):
        assert policy.ended(float(now)) in (1, 2)


def test_never_is_never() -> None:
    assert isinstance(RestartPolicy(Restart(), enabled=False).ended(0), str)
    recovery = Recovery.model_validate({"policy": "budget"})
    assert restarts(Restart(), recovery)
    assert not restarts(Restart(), Recovery())
    assert restarts(Restart(policy="on-failure"), Recovery())
    assert not restarts(Restart(policy="never"), recovery)


@given(st.lists(st.floats(0, 1e7, allow_nan=False), max_size=40))
def test_it_gives_up_exactly_when_the_window_holds_more_than_the_limit(times: list[float]) -> None:
    policy = RestartPolicy(Restart(limit=3, window_seconds=60))
    seen: list[float] = []
    for now in sorted(times):
        seen.append(now)
        crowded = len([one for one in seen if now - one <= 60]) > 3
        assert isinstance(policy.ended(now), str) == crowded
