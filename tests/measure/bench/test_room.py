"""Whether what is asked fits in the context, before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from speclaunch.core.errors import InputError
from speclaunch.measure.bench.engines import RunningSide
from speclaunch.measure.bench.measurement import ExpectedSide
from speclaunch.measure.bench.sides import longest, with_room
from speclaunch.measure.bench.workload import workload
from tests.support.loops import rows


def server(**info: Any) -> RunningSide:
    return RunningSide("s", "http://127.0.0.1:1", None, info, ExpectedSide("s", speculates=False))


@rows(
    "info, most",
    [
        ({}, None),
        ({"context_length": 1000}, 900),
        ({"max_req_input_len": 500}, 500),
        ({"context_length": None, "max_req_input_len": 500}, 500),
        ({"max_req_input_len": "many"}, None),
    ],
)
def test_what_a_server_has_room_for(info: dict[str, Any], most: int | None) -> None:
    assert longest(server(**info), 100) == most


def test_the_least_room_of_all_counts() -> None:
    sides = [server(context_length=1000), server(context_length=600), server()]
    assert with_room(workload("code", 100, 0), sides).longest == 600
    assert with_room(workload("code", 100, 0), [server()]).longest is None
    assert with_room(workload("code", 100, 0, 500), sides).context == 500


@pytest.mark.parametrize(
    ("prompts", "place", "help_"),
    [
        (workload("code", 100, 0, 501), "--context 501", "at most 500"),
        (workload("random", 100, 501), "--input-tokens 501", "at most 500"),
        (workload("code", 600, 0), "--output-tokens 600", "lower --output-tokens"),
    ],
)
def test_what_has_no_room_is_refused(prompts: Any, place: str, help_: str) -> None:
    with pytest.raises(InputError) as raised:
        with_room(prompts, [server(context_length=600)])
    (problem,) = raised.value.problems
    assert problem.place is not None and problem.place.text == place
    assert help_ in str(problem.help)
