"""Three fractions instead of one range: certain, likely, edge."""

from __future__ import annotations

import pytest

from speclaunch.deployments.sources.requests import from_words
from speclaunch.engine.facts.facts import Facts
from speclaunch.engine.facts.hardware import Gpu, Hardware, Vendor
from speclaunch.engine.plan.budget import Fit
from speclaunch.engine.plan.fit_predictor import SAFE, margins
from speclaunch.engine.plan.memory.budget import budget, memory_verdict
from speclaunch.engine.plan.memory.phases import EXPECTED
from speclaunch.engine.plan.resolve import resolve
from speclaunch.engine.releases.catalogue import load
from tests.support.engine.plan.memory.sized import NEWEST, llama, plan_of, published

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


def test_a_small_host_is_not_tight_by_the_rules_of_a_gpu() -> None:
    """What a chunk of 4,096 tokens takes by them is 6.5 GiB: more than this host has left."""
    memory = Gpu(0, "memory", 4 << 30, 4 << 30)
    host = Hardware("cpu", Vendor.CPU, gpus=(memory,), declared=False)
    words = ["--model-path", "m", "--device", "cpu", "--mem-fraction-static", "0.5"]
    request = from_words([*words, "--max-total-tokens", "8192"], {}, load(NEWEST))
    plan = resolve(request, Facts(llama(), None, host))
    assert memory_verdict(plan).fit is Fit.FITS
