"""`plan --best`: the settings for a load that the user names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from speclaunch.engine.plan.budget import Fit
from speclaunch.engine.plan.fit import Best, RequestLoad, best_for, load_of
from speclaunch.engine.plan.memory.budget import budget
from speclaunch.engine.plan.plan import Plan
from tests.support.engine.plan.memory.sized import plan_of, published

LLAMA = published("meta-llama/Meta-Llama-3.1-8B (base)")
FLAGS = {
    "mem_fraction_static": "--mem-fraction-static",
    "max_running_requests": "--max-running-requests",
    "cuda_graph_max_bs_decode": "--cuda-graph-max-bs-decode",
    "cuda_graph_bs_decode": "--cuda-graph-bs-decode",
    "tp_size": "--tp-size",
    "quantization": "--quantization",
    "kv_cache_dtype": "--kv-cache-dtype",
}


def planner(words: str = "", hardware: str | None = "h100") -> Any:
    def plan_with(changes: Mapping[str, Any]) -> Plan:
        told = "".join(f" {FLAGS[name]} {value}" for name, value in changes.items() if value)
        return plan_of(LLAMA, words + told, hardware=hardware)

    return plan_with


def best(requests: int, context: int, words: str = "", hardware: str | None = "h100") -> Best:
    return best_for(RequestLoad(requests, context), planner(words, hardware))


def test_a_load_that_has_room() -> None:
    found = best(32, 4096)
    assert found.fit is Fit.FITS and found.requests == 32
    assert found.changes["max_running_requests"] == found.changes["cuda_graph_max_bs_decode"] == 32
    assert max(found.graph_sizes) == 32
    assert found.tokens_needed == 32 * 4096
    there = budget(planner()(found.changes))
    assert there.fit is Fit.FITS and (there.tokens or 0) >= found.tokens_needed
    assert found.margins is not None and found.margins.likely is not None
    assert found.changes["mem_fraction_static"] <= found.margins.likely.fraction


def test_a_load_of_which_a_part_has_room() -> None:
    found = best(64, 8192, hardware="rtx4090")
    assert found.fit is Fit.FAILS and 0 < found.requests < 64
    assert found.changes["max_running_requests"] == found.requests
    assert "the others wait" in found.why
    there = budget(planner(hardware="rtx4090")(found.changes))
    assert there.fit is Fit.FITS
    assert found.requests * 8192 <= (there.tokens or 0)


def test_a_load_of_which_nothing_has_room_says_what_would_fit() -> None:
    found = best(4, 131072, hardware="rtx4090")
    assert found.fit is Fit.FAILS and not found.requests
    assert "no request fits" in found.why
    assert any("tp_size" in one.changes for one in found.alternatives)


def test_weights_that_do_not_fit_at_all() -> None:
    found = best(4, 1024, hardware="t4")
    assert found.fit is Fit.FAILS and found.margins is None and found.alternatives


def test_drafts_and_pages_need_room_too() -> None:
    drafting = (
        "--speculative-algorithm NGRAM --speculative-num-draft-tokens 16 --page-size 64 "
        "--attention-backend flashinfer"
    )
    assert best(1, 1000, drafting).tokens_needed == 1024
    assert best(1, 1010, drafting).tokens_needed == 1088


def test_attention_ranks_share_the_requests() -> None:
    found = best(33, 1024, "--tp-size 4 --attn-dp-size 4")
    assert found.changes["cuda_graph_max_bs_decode"] == 9
    assert found.fit is Fit.FITS and found.changes["max_running_requests"] == 36
    assert found.tokens_needed == 9 * 1024


def test_graphs_that_are_off_stay_off_and_a_list_gives_way() -> None:
    assert "cuda_graph_max_bs_decode" not in best(8, 1024, "--disable-cuda-graph").changes
    listed = best(8, 1024, "--cuda-graph-bs-decode 1 2 64").changes
    assert listed["cuda_graph_bs_decode"] is None and listed["cuda_graph_max_bs_decode"] == 8


def test_facts_that_are_missing() -> None:
    assert best(8, 1024, hardware=None).fit is Fit.UNKNOWN


def test_a_load_that_is_not_stated_is_a_common_one() -> None:
    plan = plan_of(LLAMA, "--max-running-requests 16 --context-length 8192")
    assert load_of(plan, None, None) == RequestLoad(32, 4096, ("--requests 32", "--context 4096"))
    assert load_of(plan, None, 500) == RequestLoad(32, 500, ("--requests 32",))
    assert load_of(plan, 3, 500) == RequestLoad(3, 500)
    short = plan_of(LLAMA, "--context-length 1024")
    assert load_of(short, None, None).context == 1024
    with pytest.raises(ValueError, match="exceeds this model's limit"):
        load_of(plan, 3, 8193)


def test_an_assumed_load_never_lowers_the_recipes_own_requests() -> None:
    drafting = "--max-running-requests 48"
    stated = best_for(RequestLoad(32, 4096), planner(drafting))
    assumed = best_for(RequestLoad(32, 4096, ("--requests 32",)), planner(drafting))
    assert stated.changes["max_running_requests"] == 32
    assert assumed.changes["max_running_requests"] == 48
    assert assumed.fit is Fit.FITS and assumed.requests == 32


def test_the_certain_fraction_is_taken_where_it_carries_the_load() -> None:
    found = best(32, 1024)
    assert found.margins is not None and found.margins.certain and found.margins.likely
    assert found.changes["mem_fraction_static"] == found.margins.certain.fraction
    most = found.margins.certain.tokens // 1024
    more = best(most + 8, 1024)
    assert more.margins is not None and more.margins.certain is not None
    assert more.changes["mem_fraction_static"] > more.margins.certain.fraction


def test_a_load_with_room_in_the_best_case_alone_is_tight() -> None:
    found = best(4, 1024, "--chunked-prefill-size 8192", hardware="rtx4090")
    assert found.margins is not None and found.margins.likely is None
    assert found.fit is Fit.TIGHT and found.requests == 4
