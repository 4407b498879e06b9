"""The smallest set: sufficient, and nothing of it can be left out, whatever refuses."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from speclaunch.checks.engine_check.opinions import UnitSet, smallest


def searched(units: int, refuses) -> tuple[UnitSet, int]:  # type: ignore[no-untyped-def]
    search, rounds = smallest(units), 0
    try:
        sets = next(search)
        while True:
            rounds += 1
            sets = search.send([refuses(one) for one in sets])
    except StopIteration as end:
        return end.value, rounds


@pytest.mark.thorough
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.integers(0, 12))
def test_it_is_sufficient_and_minimal(data: st.DataObject, units: int) -> None:
    some = st.frozensets(st.integers(0, max(units - 1, 0)), max_size=units)
    ways = data.draw(st.lists(some, min_size=1, max_size=3))
    ways = [frozenset(one for one in way if one < units) for way in ways]

    def refuses(kept: UnitSet) -> bool:
        return any(way <= kept for way in ways)

    found, rounds = searched(units, refuses)
    assert refuses(found)
    assert not any(refuses(found - {one}) for one in found)
    assert rounds <= 14


def test_a_pair_takes_two_rounds() -> None:
    assert searched(9, frozenset({2, 7}).issubset) == (frozenset({2, 7}), 2)


def test_one_takes_a_single_round() -> None:
    assert searched(9, frozenset({4}).issubset) == (frozenset({4}), 1)


def test_none_where_the_model_alone_is_refused() -> None:
    assert searched(5, lambda _: True) == (frozenset(), 1)


def test_what_another_argument_mends_is_found_without_it() -> None:
    """Refused with 1 unless 2 is there, and with 3: leaving 3 out alone changes the refusal."""

    def refuses(kept: UnitSet) -> bool:
        return (1 in kept and 2 not in kept) or {1, 3} <= kept

    found, _ = searched(5, refuses)
    assert found == frozenset({1})
