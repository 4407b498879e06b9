"""Three fractions instead of one range: certain, likely, edge."""

from __future__ import annotations

import pytest

from speclaunch.plan.budget import Fit
from speclaunch.plan.memory.budget import budget
from speclaunch.plan.memory.margins import SAFE, margins
from speclaunch.plan.memory.phases import EXPECTED
from tests.plan.memory.sized import plan_of, published

QWEN = published("meta-llama/Meta-Llama-3.1-8B (base)")


def test_they_are_in_order_and_give_more_and_more() -> None:
    plan = plan_of(QWEN, "--mem-fraction-static 0.8 --chunked-prefill-size 2048", hardware="h100")
    found = margins(plan)
    assert found is not None and found.certain and found.likely and found.edge
    assert found.least < found.certain.fraction < found.likely.fraction < found.edge.fraction
    assert found.certain.tokens < found.likely.tokens < found.edge.tokens
    assert found.certain.spare_bytes > found.likely.spare_bytes > found.edge.spare_bytes
    assert found.best == found.likely
    working = budget(plan).working_fractions
    assert working == (found.least, found.edge.fraction)


def test_what_a_choice_gives_is_what_the_budget_says_of_it() -> None:
    found = margins(plan_of(QWEN, "", hardware="h100"))
    assert found is not None and found.likely is not None
    words = f"--mem-fraction-static {found.likely.fraction}"
    there = budget(plan_of(QWEN, words, hardware="h100"))
    assert there.fit is Fit.FITS
    assert (there.tokens, there.requests_at_context, there.running_requests) == (
        found.likely.tokens,
        found.likely.requests_at_context,
        found.likely.running_requests,
    )


def test_without_anything_that_is_estimated_for_graphs_less_is_uncertain() -> None:
    """The estimates decide how far apart they are."""
    few = margins(plan_of(QWEN, "--chunked-prefill-size 1024 --disable-cuda-graph"))
    many = margins(plan_of(QWEN, "--chunked-prefill-size 16384"))
    assert few is not None and few.certain and few.edge
    assert many is not None and many.certain and many.edge
    apart = [
        one.edge.fraction - one.certain.fraction for one in (few, many) if one.certain and one.edge
    ]
    assert apart[0] < apart[1]
    assert EXPECTED < 1 < SAFE


@pytest.mark.parametrize(
    ("words", "hardware"), [("", None), ("--cpu-offload-gb 4", "h100"), ("", "t4")]
)
def test_none_where_nothing_is_known_or_works(words: str, hardware: str | None) -> None:
    assert margins(plan_of(QWEN, words, hardware=hardware)) is None
