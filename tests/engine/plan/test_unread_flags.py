"""What the parser did not understand is unknown: no default stands in for it."""

from __future__ import annotations

import pytest

from speclaunch.checks.rules.examine import check_rules
from speclaunch.checks.rules.registry import all_rules
from speclaunch.deployments.sources.requests import from_words, meant_by
from speclaunch.engine.facts.facts import Facts
from speclaunch.engine.plan.budget import Fit
from speclaunch.engine.plan.effective_arguments import ArgumentOutcome, effective_arguments
from speclaunch.engine.plan.memory.budget import budget
from speclaunch.engine.plan.plan import Plan, UnknownValueError
from speclaunch.engine.plan.resolve import resolve
from speclaunch.engine.releases.catalogue import load
from tests.engine.plan.resolving import H100, LLAMA
from tests.support.loops import rows

_DRAFT = "speculative_draft_model_path"


def _plan(words: str, version: str) -> Plan:
    request = from_words(["--model-path", "m", *words.split()], {}, load(version))
    return resolve(request, Facts(LLAMA, None, H100))


@pytest.mark.parametrize("version", ["0.5.2", "0.5.10.post1", "0.5.23"])
def test_an_ambiguous_flag_leaves_all_that_it_may_mean_unknown(version: str) -> None:
    found = _plan("--speculative-algorithm EAGLE3 --speculative-draft d", version)
    for ask in (found.user_value, found.value, found.is_set):
        with pytest.raises(UnknownValueError, match="--speculative-draft was rejected"):
            ask(_DRAFT)
    judged = check_rules(found, all_rules())
    assert {"SPL002"} == {finding.code for finding in judged.errors}
    assert "SPL404" in {rule.code for rule in judged.skipped}


def test_the_target_is_not_taken_for_its_own_draft() -> None:
    found = budget(_plan("--speculative-algorithm EAGLE3 --speculative-draft d", "0.5.10.post1"))
    assert found.fit is Fit.UNKNOWN
    assert any("--speculative-draft was rejected" in reason for reason in found.unknown)


@rows(
    "words, name, version",
    [
        ("--speculative-eagle-topk two", "speculative_eagle_topk", "0.5.23"),  # no number
        ("--attention-backend flashinfr", "attention_backend", "0.5.9"),  # no such choice
        ("--speculative-num-stpes 3", "speculative_num_steps", "0.5.23"),  # misspelled
        ("--cuda-graph-max-bs 8", "cuda_graph_max_bs_decode", "0.5.23"),  # an older name
        ("--tensor-parallel-sise 8", "tp_size", "0.5.3.post3"),
        ("--enable-flashmla", "attention_backend", "0.5.23"),  # became a value
        ("--mem-fraction-static", "mem_fraction_static", "0.5.23"),  # without its value
    ],
)
def test_what_a_refused_flag_was_meant_for(words: str, name: str, version: str) -> None:
    with pytest.raises(UnknownValueError, match="was rejected"):
        _plan(words, version).value(name)


def test_a_flag_like_nothing_hides_nothing() -> None:
    found = _plan("--qqq 1 --speculative-algorithm NGRAM", "0.5.23")
    assert not found.request.unread
    assert found.value("tp_size") == 1


def test_what_is_given_besides_keeps_its_value() -> None:
    assert _plan("--tp-size 8 --tp-sise 4", "0.5.23").value("tp_size") == 8


def test_an_argument_that_the_version_lacks_is_not_meant() -> None:
    assert meant_by("--speculative-draft-attention-backend", load("0.5.2")) == ()
    assert meant_by("--enable-ep-moe", load("0.5.23")) == ()


def test_the_list_of_values_says_so() -> None:
    rows = effective_arguments(_plan("--speculative-draft d", "0.5.23"))
    row = next(row for row in rows if row.name == _DRAFT)
    assert row.outcome is ArgumentOutcome.UNKNOWN
    assert "was rejected" in row.why
