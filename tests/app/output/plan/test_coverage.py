"""Which batch sizes run in a CUDA graph, and what the padding costs."""

from __future__ import annotations

from speclaunch.measure.advice.planned_deployment import (
    BatchCoverage,
    BatchSpan,
    Coverage,
    NoCoverage,
    coverage,
)
from tests.support.app.output.plan.helpers import planned


def test_captured_padded_and_uncovered_sizes() -> None:
    found = Coverage((1, 2, 4, 8), 10)
    kinds = [found.covered(batch).value for batch in range(1, 11)]
    assert kinds == ["captured"] * 2 + ["padded", "captured"] + ["padded"] * 3 + [
        "captured",
        "uncovered",
        "uncovered",
    ]
    assert [found.count(kind) for kind in BatchCoverage] == [4, 4, 2]
    assert found.graph_for(5) == 8 and found.graph_for(9) is None
    assert found.waste(5) == 3 / 8 and found.worst == 5
    # 1, 2, 4 and 8 waste nothing; 3 wastes 1/4, 5 to 7 waste 3/8, 2/8 and 1/8
    assert found.average_waste == (1 / 4 + 3 / 8 + 2 / 8 + 1 / 8) / 8


def test_spans_cover_every_batch_once() -> None:
    found = Coverage((1, 2, 4, 8), 10)
    spans = list(found.spans())
    assert spans[0] == BatchSpan(1, 2, BatchCoverage.CAPTURED)
    covered = [batch for span in spans for batch in range(span.first, span.last + 1)]
    assert covered == list(range(1, 11))
    assert all(found.covered(b) is s.covered for s in spans for b in range(s.first, s.last + 1))


def test_without_padding_only_captured_sizes_have_a_graph() -> None:
    found = Coverage((1, 4), 4, pads=False)
    assert [found.covered(batch) for batch in (1, 2, 3, 4)] == [
        BatchCoverage.CAPTURED,
        BatchCoverage.UNCOVERED,
        BatchCoverage.UNCOVERED,
        BatchCoverage.CAPTURED,
    ]
    assert found.worst is None and found.average_waste == 0


def test_of_a_plan() -> None:
    found = planned("args.max_running_requests=20", "args.cuda_graph_max_bs_decode=12").coverage
    assert isinstance(found, Coverage)
    assert (found.most, found.sizes[-1]) == (20, 12)
    assert found.covered(20) is BatchCoverage.UNCOVERED


def test_of_ranks_that_share_the_requests() -> None:
    found = planned(
        *("args.tp_size=4", "args.attn_dp_size=2", "args.max_running_requests=64"),
        hardware="h100:4",
    ).coverage
    assert isinstance(found, Coverage)
    assert found.most == 32 and "each of 2 data-parallel ranks" in found.note


def test_where_there_are_none_it_says_why() -> None:
    off = planned("args.disable_cuda_graph=true").coverage
    assert off == NoCoverage("decode runs without CUDA graphs: they are disabled")
    unknown = planned(hardware=None).coverage
    assert isinstance(unknown, NoCoverage) and unknown.unknown
    assert "hardware" in unknown.why
    cpu = planned(recipe="cpu_ngram", hardware="cpu", target=None, draft=None).coverage
    assert cpu == NoCoverage("a CPU has no CUDA graphs")


def test_without_a_limit_of_requests_the_largest_graph_is_the_end() -> None:
    plan = planned("args.speculative_algorithm=null", "args.cuda_graph_max_bs_decode=16").plan
    found = coverage(plan)
    assert isinstance(found, Coverage) and found.most == found.sizes[-1] == 16
    assert "unknown" in found.note
    known = coverage(plan, 24)
    assert isinstance(known, Coverage) and known.most == 24 and not known.note
