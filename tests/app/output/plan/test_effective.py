"""Arguments as rows, and the difference of two plans."""

from __future__ import annotations

from speclaunch.engine.plan.effective_arguments import (
    HIDDEN,
    ArgumentOutcome,
    Concern,
    EffectiveArgument,
    compare,
    compare_budgets,
    concern_of,
)
from speclaunch.measure.advice.plan_requests import compared
from tests.support.app.output.plan.helpers import FAILS, FITS, UNKNOWN, PlannedDeployment, planned
from tests.support.loops import rows


def row(found: PlannedDeployment, name: str) -> EffectiveArgument:
    return next(one for one in found.rows if one.name == name)


def test_every_argument_has_one_row_and_its_outcome() -> None:
    found = planned()
    names = [one.name for one in found.rows]
    assert len(names) == len(set(names)) > 400
    assert row(found, "speculative_num_steps").outcome is ArgumentOutcome.ACCEPTED
    assert row(found, "max_running_requests").outcome is ArgumentOutcome.FILLED
    assert row(found, "max_running_requests").effective == 48
    assert "speculative" in row(found, "max_running_requests").why
    assert "sglang" in row(found, "max_running_requests").source
    assert row(found, "log_level").outcome is ArgumentOutcome.DEFAULT
    assert not row(found, "log_level").notable and row(found, "max_total_tokens").notable


def test_a_missing_fact_is_named_and_not_guessed() -> None:
    found = planned(hardware=None)
    unknown = row(found, "attention_backend")
    assert unknown.outcome is ArgumentOutcome.UNKNOWN and unknown.effective is None
    assert unknown.why == "the hardware is unknown"
    assert unknown.notable


def test_what_the_engine_changes_without_a_word_is_silent() -> None:
    found = planned("args.enable_dp_attention=true", version="0.5.10.post1")
    changed = row(found, "enable_dp_attention")
    assert (changed.user_value, changed.effective) == (True, False)
    assert changed.outcome is ArgumentOutcome.CHANGED and changed.silent
    told = planned("args.speculative_algorithm=NEXTN")
    assert row(told, "speculative_algorithm").effective == "EAGLE"
    assert row(told, "speculative_algorithm").outcome is ArgumentOutcome.CHANGED


def test_an_argument_goes_by_the_name_of_its_version() -> None:
    assert (
        row(planned(version="0.5.9"), "cuda_graph_max_bs_decode").version_name
        == "cuda_graph_max_bs"
    )
    new = row(planned(version="0.5.23"), "cuda_graph_max_bs_decode")
    assert new.version_name == "cuda_graph_max_bs_decode"


def test_secrets_are_hidden() -> None:
    found = planned("args.api_key=sk-secret")
    assert row(found, "api_key").user_value == row(found, "api_key").effective == HIDDEN
    assert "sk-secret" not in repr(found.rows)
    assert row(planned(), "api_key").user_value is None


@rows(
    "name, concern",
    [
        ("speculative_ngram_max_bfs_breadth", Concern.SPECULATION),
        ("speculative_draft_attention_backend", Concern.SPECULATION),
        ("mem_fraction_static", Concern.MEMORY),
        ("kv_cache_dtype", Concern.MEMORY),
        ("max_running_requests", Concern.SCHEDULING),
        ("tp_size", Concern.SCHEDULING),
        ("prefill_attention_backend", Concern.ATTENTION),
        ("cuda_graph_bs_decode", Concern.GRAPHS),
        ("disable_piecewise_cuda_graph", Concern.GRAPHS),
        ("port", Concern.SERVING),
    ],
)
def test_concerns(name: str, concern: Concern) -> None:
    assert concern_of(name) is concern


def test_rows_are_sorted_by_concern() -> None:
    order = list(Concern)
    found = [order.index(one.concern) for one in planned().rows]
    assert found == sorted(found)
    assert planned().rows[0].name == "speculative_algorithm"


def test_the_same_plan_has_no_difference() -> None:
    one, other = planned(), planned()
    assert compare(one.plan, other.plan) == ()
    assert compared(one, other).same


def test_an_upgrade_shows_values_spellings_and_both_reasons() -> None:
    found = {one.name: one for one in compare(planned(version="0.5.9").plan, planned().plan)}
    renamed = found["cuda_graph_max_bs_decode"]
    assert renamed.name_differs and not renamed.value_differs
    overlap = found["disable_overlap_schedule"]
    assert overlap.value_differs and overlap.before and overlap.after
    assert (overlap.before.effective, overlap.after.effective) == (True, False)
    assert overlap.before.why != overlap.after.why
    assert found["cuda_graph_backend_prefill"].before is None
    # arguments that came with a later version and that nobody touched are no difference
    assert "attn_dp_size" not in found and "uno" not in " ".join(found)


def test_a_value_that_becomes_unknown_is_a_difference() -> None:
    found = {one.name: one for one in compare(planned().plan, planned(hardware=None).plan)}
    assert found["attention_backend"].value_differs
    assert not compare(planned(hardware=None).plan, planned(hardware=None).plan)


def test_findings_and_command_of_a_comparison() -> None:
    found = compared(planned(version="0.5.9"), planned("args.max_running_requests=64"))
    assert "SPL904" in {finding.code for finding in found.lost}
    assert "SPL904" not in {finding.code for finding in found.gained}
    assert "SPL403" not in {finding.code for finding in (*found.lost, *found.gained)}
    assert "- --cuda-graph-max-bs 8" in found.command
    assert "+ --cuda-graph-max-bs-decode 8" in found.command
    assert "+ --max-running-requests 64" in found.command
    assert not any("port" in line for line in found.command)


def test_budgets_side_by_side() -> None:
    found = {one.name: one for one in compare_budgets(FITS, FAILS)}
    assert (found["fit"].before, found["fit"].after) == ("fits", "fails")
    assert found["tokens in the KV cache"].after == 468_000
    assert found["highest fraction that works"].before == 0.912
    assert not found["running requests"].differs
    assert found["request slots"].after == 0
    unknown = {one.name: one for one in compare_budgets(FITS, UNKNOWN)}
    assert unknown["target weights"].after is None
    assert unknown["tokens in the KV cache"].after is None
