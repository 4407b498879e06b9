"""`plan --fit`: the settings that fit with the least loss."""

from __future__ import annotations

from typing import Any

from speclaunch.engine.plan.budget import Fit, FitFloors, FitLimits, Steppable
from speclaunch.engine.plan.fit import Suggestion, suggest_fit
from speclaunch.engine.plan.fit_predictor import Bounds, halves, steps_down
from speclaunch.engine.plan.fit_search import fractions
from tests.support.serving.launch.ladder.deployments import CHAIN, TREE, Arithmetic, planner

TIGHT = {**CHAIN, "chunked_prefill_size": 8192, "mem_fraction_static": 0.97}


def suggestion(args: dict[str, Any], **budget: Any) -> Suggestion:
    return suggest_fit(planner(args), budget=Arithmetic(**budget))


def steps(args: dict[str, Any], knob: Steppable, **floors: int) -> list[dict[str, Any]]:
    return [dict(step) for step in steps_down(planner(args)({}), knob, FitFloors(**floors))]


def test_what_fits_needs_no_change() -> None:
    found = suggestion({**TIGHT, "mem_fraction_static": 0.8})
    assert found.fit is Fit.FITS
    assert found.changes == ()


def test_too_high_a_fraction_is_the_only_change() -> None:
    found = suggestion(TIGHT)
    assert found.fit is Fit.FITS
    (change,) = found.changes
    assert change.name == "mem_fraction_static"
    assert change.before == 0.97
    assert 0.85 < change.value < 0.93
    assert change.why
    assert "KV tokens" in change.cost
    assert found.objective.startswith("preserve decode graphs first")


def test_too_low_a_fraction_is_raised() -> None:
    found = suggestion({**TIGHT, "mem_fraction_static": 0.1})
    assert 0.21 < found.arguments["mem_fraction_static"] < 0.93
    assert set(found.arguments) == {"mem_fraction_static"}


def test_what_is_suggested_is_predicted_with_its_tokens() -> None:
    found = suggestion(TIGHT)
    assert found.after is not None
    assert found.after.tokens == Arithmetic()(planner(TIGHT)(found.arguments)).tokens


def test_running_requests_are_given_up_last() -> None:
    args = {**TREE, "mem_fraction_static": 0.95, "max_running_requests": 48}
    found = suggestion(args, weights=60.0, graph_mib=12.0)
    assert found.fit is Fit.FITS
    assert "max_running_requests" not in found.arguments
    assert len(found.changes) > 1


def test_nothing_that_fits_says_why_and_what_else_would() -> None:
    found = suggestion(TIGHT, weights=79.0)
    assert found.fit is Fit.FAILS
    assert "79.0 GiB" in found.why
    assert any("GiB on each GPU" in one.verdict for one in found.alternatives)


def test_no_alternative_is_one_that_the_engine_refuses() -> None:
    def offered(**args: Any) -> list[Any]:
        found = suggestion({**TIGHT, **args}, weights=79.0).alternatives
        return [one.changes.get("speculative_algorithm") for one in found]

    assert "NGRAM" in offered()
    assert offered(tp_size=2, attn_dp_size=2) and "NGRAM" not in offered(tp_size=2, attn_dp_size=2)


def test_unknown_stays_unknown() -> None:
    found = suggestion(TIGHT, known=False)
    assert found.fit is Fit.UNKNOWN
    assert found.why == "the weights are not known"
    assert found.changes == ()


def test_halves() -> None:
    assert halves(256, 32) == [128, 64, 32]
    assert halves(48, 4) == [24, 12, 6, 4]
    assert halves(4, 4) == []
    assert halves(3, 4) == []


def test_a_tree_becomes_smaller_and_then_a_chain() -> None:
    shapes = [tuple(step.values()) for step in steps(TREE, Steppable.TREE)]
    assert shapes == [(5, 8, 32), (5, 8, 16), (5, 8, 8), (3, 1, 4), (1, 1, 2)]


def test_a_chain_verifies_one_token_more_than_it_has_steps() -> None:
    shapes = [tuple(step.values()) for step in steps(CHAIN, Steppable.TREE)]
    assert shapes == [(3, 1, 4), (1, 1, 2)]
    assert [tuple(s.values()) for s in steps(CHAIN, Steppable.TREE, speculative_num_steps=3)] == [
        (3, 1, 4)
    ]


def test_ngram_has_draft_tokens_only() -> None:
    args = {
        "speculative_algorithm": "NGRAM",
        "speculative_draft_model_path": None,
        "speculative_num_draft_tokens": 12,
    }
    assert steps(args, Steppable.TREE) == [
        {"speculative_num_draft_tokens": 6},
        {"speculative_num_draft_tokens": 4},
    ]


def test_adaptive_speculation_is_left_alone() -> None:
    args = {"speculative_adaptive": True, "speculative_num_steps": 3, "speculative_eagle_topk": 1}
    assert steps(args, Steppable.TREE) == []


def test_a_list_of_graph_sizes_stays_a_part_of_itself() -> None:
    args = {**CHAIN, "cuda_graph_bs_decode": [3, 7, 20, 40], "max_running_requests": 48}
    found = [step["cuda_graph_bs_decode"] for step in steps(args, Steppable.GRAPHS)]
    assert found == [[3, 7, 20], [3, 7], [3]]


def test_graphs_start_from_what_is_captured() -> None:
    """Requests limit the capture: half of the 48 that run, not half of the list's 256."""
    assert steps(CHAIN, Steppable.GRAPHS)[0] == {"cuda_graph_max_bs_decode": 24}


def test_no_graphs_no_steps() -> None:
    assert steps({**CHAIN, "disable_cuda_graph": True}, Steppable.GRAPHS) == []
    assert steps({**CHAIN, "cuda_graph_backend_decode": "disabled"}, Steppable.GRAPHS) == []


def test_chunks_are_whole_pages() -> None:
    args = {**CHAIN, "chunked_prefill_size": 8192, "page_size": 64}
    found = [step["chunked_prefill_size"] for step in steps(args, Steppable.CHUNK)]
    assert found == [4096, 2048, 1024]
    odd = {**args, "chunked_prefill_size": 6144, "page_size": 1024}
    assert [s["chunked_prefill_size"] for s in steps(odd, Steppable.CHUNK)] == [3072, 1024]


def test_prompts_that_are_not_cut_are_cut() -> None:
    args = {**CHAIN, "chunked_prefill_size": -1}
    assert steps(args, Steppable.CHUNK)[0] == {"chunked_prefill_size": 8192}


def test_a_limit_on_the_pool_is_only_lowered_where_it_is_given() -> None:
    assert steps(CHAIN, Steppable.POOL) == []
    args = {**CHAIN, "max_total_tokens": 8192, "context_length": 2048}
    assert steps(args, Steppable.POOL) == [{"max_total_tokens": 4096}, {"max_total_tokens": 2048}]


def test_fractions_end_at_the_limits_and_prefer_the_middle_of_a_narrow_range() -> None:
    limits = FitLimits(most_fraction=0.9)
    assert fractions(Bounds(0.5, 0.95), limits)[0] == 0.9
    assert fractions(Bounds(0.8, 0.81), limits) == (0.805,)
    assert fractions(Bounds(0.8, 0.79), limits) == ()


def test_a_fraction_that_is_tight_is_lowered_to_the_likely_one() -> None:
    found = suggest_fit(planner({**CHAIN, "mem_fraction_static": 0.96}))
    assert found.before.fit is Fit.TIGHT and found.before.likely_fractions is not None
    assert found.fit is Fit.FITS and found.after is not None and found.after.fit is Fit.FITS
    assert found.arguments == {"mem_fraction_static": found.before.likely_fractions[1]}


def test_where_nothing_is_likely_to_fit_it_says_that_the_settings_are_tight() -> None:
    """What the chunk needs is fixed: only the fraction and the requests may be stepped."""
    order = (Steppable.FRACTION, Steppable.RUNNING)
    limits = FitLimits(order)
    args = {**CHAIN, "chunked_prefill_size": 8192, "mem_fraction_static": 0.86}
    found = suggest_fit(planner(args, hardware="rtx4090"), limits=limits)
    assert found.before.fit is Fit.TIGHT and found.fit is Fit.TIGHT and not found.changes
    assert "no settings are likely to fit; the current settings are tight" in found.why
    failing = {**args, "mem_fraction_static": 0.6}
    best_case = suggest_fit(planner(failing, hardware="rtx4090"), limits=limits)
    assert best_case.before.fit is Fit.FAILS and best_case.fit is Fit.TIGHT
    assert best_case.after is not None and best_case.after.fit is Fit.TIGHT
