"""The price of what settings give up: decode without CUDA graphs is the dearest."""

from __future__ import annotations

from typing import Any

import pytest

from speclaunch.checks.rules.examine import Lookup
from speclaunch.deployments.recipe.load import load
from speclaunch.deployments.targets.prepare import prepare
from speclaunch.engine.facts.hardware import declare
from speclaunch.engine.plan.budget import Fit, MemoryBudget
from speclaunch.engine.plan.fit_search import Prices, pool_price
from speclaunch.serving.launch.ladder import outlook
from speclaunch.serving.launch.session import Session

PRICES = Prices(running=48, largest_graph=48, steps=5, tokens=64, chunk=8192)
GRAPHS, RUNNING, CHUNK = "cuda_graph_max_bs_decode", "max_running_requests", "chunked_prefill_size"


def test_what_is_lost_has_its_price() -> None:
    chain = {"speculative_num_steps": 3, "speculative_num_draft_tokens": 4}
    order: list[dict[str, Any]] = [{}, {CHUNK: 4096}, {CHUNK: 2048}, {RUNNING: 24}, chain]
    order += [{GRAPHS: 24}, {GRAPHS: 2}]
    prices = [PRICES.settings(changes) for changes in order]
    assert prices[0] == 0 and prices == sorted(prices) and len(set(prices)) == len(prices)
    assert PRICES.settings({RUNNING: 4}) < PRICES.settings({GRAPHS: 2})
    assert PRICES.settings({RUNNING: 24, GRAPHS: 24}) == PRICES.settings({RUNNING: 24})


def test_graphs_that_the_recipe_does_not_have_are_not_lost() -> None:
    few = Prices(running=48, largest_graph=8, steps=3, tokens=4, chunk=8192)
    assert few.settings({RUNNING: 8}) == pytest.approx(2 * 2.585, abs=0.01)
    none = Prices(running=48, largest_graph=None, steps=3, tokens=4, chunk=8192)
    assert none.settings({GRAPHS: 2}) == 0


def test_ranks_share_requests_and_chunks() -> None:
    shared = Prices(running=48, largest_graph=12, steps=3, tokens=4, chunk=2048, ranks=4)
    assert shared.settings({CHUNK: 8192}) == 0  # of each rank a quarter
    assert shared.settings({RUNNING: 24}) == 2
    assert shared.settings({GRAPHS: 6}) > 2


def pool(**numbers: Any) -> float:
    enough = numbers.pop("enough", None)
    return pool_price(MemoryBudget(Fit.FITS, "", **numbers), enough)


def test_a_pool_costs_what_it_lacks() -> None:
    whole = {"tokens": 100_000, "running_requests": 48, "context_length": 8192}
    assert pool(**whole, requests_at_context=12) == 0
    assert pool(**whole, requests_at_context=12, enough=200_000) == 2
    short = {**whole, "context_length": 200_000, "requests_at_context": 0}
    assert pool(**short) == 1
    assert pool(**{**short, "tokens": 12_288}) == pytest.approx(2 + 4.02, abs=0.01)


@pytest.mark.thorough
@pytest.mark.parametrize("gpu", ["l40s", "a100-80gb", "h100", "b200"])
def test_predicted_steps_keep_the_graphs_of_decode(gpu: str) -> None:
    """Qwen3-8B with DFLASH: no fraction is raised again once it was lowered, and on a GPU that is
    not short all batches keep their graph until the requests are at their floor."""
    words = ["recovery=default", "args.model_path=Qwen/Qwen3-8B"]
    words.append("args.speculative_draft_model_path=z-lab/Qwen3-8B-DFlash-b16")
    prepared = prepare(load("dflash_llama8b", words), dry_run=True)
    facts = Lookup(hardware=declare(gpu)).facts(prepared.request({}))
    session = Session(prepared, facts, ())
    rungs, _ = outlook(prepared.recipe.deployment.recovery, session.plan_with)
    changes: dict[str, Any] = {}
    fractions = []
    for rung in rungs:
        changes |= rung.changes
        fractions.append(changes["mem_fraction_static"])
        covered = changes.get(GRAPHS, 48) >= changes.get(RUNNING, 48)
        assert covered or changes[RUNNING] == 4 or gpu == "l40s", (rung.name, changes)
    assert len(rungs) >= 3 and fractions == sorted(fractions, reverse=True)
