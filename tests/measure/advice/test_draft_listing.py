"""`drafts`: which releases take a way, and what it costs."""

from __future__ import annotations

from functools import cache

import pytest

from speclaunch.checks.rules.examine import Lookup
from speclaunch.core.errors import InputError
from speclaunch.engine.facts.hardware import declare
from speclaunch.engine.plan.budget import Fit
from speclaunch.engine.releases.catalogue import held_versions
from speclaunch.measure.advice.drafts import (
    DraftListing,
    ListedWay,
    SpeculationMethod,
    find_target,
    listing,
    spans_of,
)
from tests.support.loops import rows

FEW = ("0.4.6.post5", "0.5.2", "0.5.9", "0.5.12.post1", "0.5.23")


@cache
def found(
    target: str, hardware: str | None = None, versions: tuple[str, ...] = FEW
) -> DraftListing:
    lookup = Lookup(hardware=declare(hardware) if hardware else None)
    return listing(find_target(target, lookup), lookup, versions)


def way(listed: DraftListing, draft: str | None, method: SpeculationMethod) -> ListedWay:
    (one,) = (o for o in listed.ways if o.way.draft == draft and o.way.method is method)
    return one


@rows(
    "taken, spans",
    [
        ("", ()),
        ("a", (("a", "a"),)),
        ("abc", (("a", "c"),)),
        ("acd", (("a", "a"), ("c", "d"))),
        ("bd", (("b", "b"), ("d", "d"))),
    ],
)
def test_releases_in_a_row(taken: str, spans: tuple[tuple[str, str], ...]) -> None:
    assert spans_of(taken, "abcd") == spans


def test_an_algorithm_begins_with_its_release() -> None:
    listed = found("Qwen/Qwen3-8B")
    assert way(listed, None, SpeculationMethod.NGRAM).spans == (("0.5.9", "0.5.23"),)
    assert way(listed, "z-lab/Qwen3-8B-DFlash-b16", SpeculationMethod.DFLASH).spans == (
        ("0.5.12.post1", "0.5.23"),
    )
    assert way(listed, "Qwen/Qwen3-0.6B", SpeculationMethod.STANDALONE).spans == (
        ("0.5.2", "0.5.23"),
    )


def test_own_layers_begin_with_the_release_that_has_the_class() -> None:
    listed = found("zai-org/GLM-4.6")
    assert way(listed, None, SpeculationMethod.MTP).spans == (("0.5.2", "0.5.23"),)


def test_a_pair_that_newer_releases_refuse_ends_there() -> None:
    listed = found("Qwen/Qwen2.5-7B-Instruct")
    documented = way(listed, "Qwen/Qwen2.5-1.5B-Instruct", SpeculationMethod.STANDALONE)
    assert documented.spans == (("0.5.2", "0.5.12.post1"),)
    assert "152064 and 151936" in documented.refused


def test_a_foreign_draft_is_taken_by_none() -> None:
    listed = found("Qwen/Qwen3-8B")
    (other,) = (
        one for one in listed.ways if one.way.draft == "RedHatAI/Qwen3-8B-speculator.eagle3"
    )
    assert other.spans == () and "speculators" in other.refused


def test_a_head_in_another_layout_is_listed_with_the_warning() -> None:
    listed = found("meta-llama/Llama-2-7b-chat-hf", versions=("0.5.23",))
    original = way(listed, "yuhuili/EAGLE-llama2-chat-7B", SpeculationMethod.EAGLE2)
    assert original.spans and original.doubts[0].startswith("SPL420")
    converted = way(listed, "lmsys/sglang-EAGLE-llama2-chat-7B", SpeculationMethod.EAGLE2)
    assert converted.spans and not converted.doubts


def test_a_draft_for_one_mode_of_the_target_is_a_warning() -> None:
    listed = found("Qwen/Qwen3-8B")
    block = way(listed, "z-lab/Qwen3-8B-DFlash-b16", SpeculationMethod.DFLASH)
    assert block.doubts[0].startswith("trained for non-thinking mode") and block.spans
    assert "in non-thinking mode" in block.way.why
    assert not way(listed, "AngelSlim/Qwen3-8B_eagle3", SpeculationMethod.EAGLE3).doubts


def test_a_quantized_copy_of_a_draft_begins_with_its_class() -> None:
    listed = found("Qwen/Qwen3.8-27B", versions=("0.5.18", "0.5.23"))
    for name in ("incoai/Qwen3.8-27B-DFlash2", "josch15366/Qwen3.8-27B-DFlash2-FP8"):
        assert way(listed, name, SpeculationMethod.DFLASH).spans == (("0.5.23", "0.5.23"),)


def test_all_held_releases_count_where_none_is_named() -> None:
    assert found("google/gemma-3-1b-it", versions=()).versions == held_versions()


@pytest.mark.thorough
def test_the_memory_of_each_way() -> None:
    listed = found("Qwen/Qwen3-8B", "h100:1", ("0.5.23",))
    ngram = way(listed, None, SpeculationMethod.NGRAM).memory
    small = way(listed, "Qwen/Qwen3-0.6B", SpeculationMethod.STANDALONE).memory
    block = way(listed, "z-lab/Qwen3-8B-DFlash-b16", SpeculationMethod.DFLASH).memory
    assert ngram is not None and small is not None and block is not None
    assert ngram.draft_weights == 0 and ngram.draft_kv == 0 and ngram.fits
    assert small.draft_weights is not None and 1.1e9 < small.draft_weights < 1.6e9  # 0.6B, bfloat16
    assert small.draft_kv == 28 * 2 * 8 * 128 * 2  # layers, K and V, KV heads, head_dim, bytes
    assert ngram.tokens is not None and small.tokens is not None and block.tokens is not None
    assert ngram.tokens > block.tokens > small.tokens


@pytest.mark.thorough
def test_a_draft_of_which_nothing_is_known_has_no_cost_and_says_why() -> None:
    listed = found("Qwen/Qwen3-8B", "h100:1", ("0.5.23",))
    unknown = next(one for one in listed.ways if one.way.draft == "Tengyunw/qwen3_8b_eagle3").memory
    assert unknown is not None and unknown.fits is None and "is unknown" in unknown.note


@pytest.mark.parametrize(
    ("name", "said"),
    [("Qwen3-8b", "Qwen/Qwen3-8B"), ("meta-llama/Llama-3.1-8B-Instrct", "Llama-3.1-8B-Instruct")],
)
def test_a_target_that_nobody_knows_names_its_neighbours(name: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        find_target(name, Lookup())
    assert said in (caught.value.problems[0].help or "")


def test_a_draft_is_no_target() -> None:
    with pytest.raises(InputError, match="is a draft of Qwen/Qwen3-8B"):
        find_target("z-lab/Qwen3-8B-DFlash-b16", Lookup())
    with pytest.raises(InputError, match="is a draft of"):  # nothing of its config is known
        find_target("Tengyunw/qwen3_8b_eagle3", Lookup())
    assert find_target("Qwen/Qwen2.5-1.5B-Instruct", Lookup()).name  # drafts, and is a model


@pytest.mark.thorough
def test_all_ways_are_compared_at_their_own_best_fraction() -> None:
    """At the engine's own fraction EAGLE-3 would hold 1,278 tokens, and a draft of 1B 2,111."""
    listed = found("meta-llama/Llama-3.3-70B-Instruct", "h100:2", ("0.5.23",))
    drafts = {
        "lmsys/SGLang-EAGLE3-Llama-3.3-70B-Instruct-SpecForge": SpeculationMethod.EAGLE3,
        "meta-llama/Llama-3.2-1B-Instruct": SpeculationMethod.STANDALONE,
        "meta-llama/Llama-3.2-3B-Instruct": SpeculationMethod.STANDALONE,
    }
    costs = [way(listed, draft, method).memory for draft, method in drafts.items()]
    tokens = [one.tokens or 0 for one in costs if one is not None]
    assert tokens == sorted(tokens, reverse=True) and min(tokens) > 20_000
    assert all(one and one.verdict is Fit.FITS and one.fits and one.ranks == 2 for one in costs)
    large = way(listed, "meta-llama/Llama-3.1-8B-Instruct", SpeculationMethod.STANDALONE).memory
    assert large is not None and large.verdict is Fit.TIGHT and not large.fits


def test_a_short_draft_is_listed_with_the_variable_that_lets_it_start() -> None:
    listed = found("meta-llama/Llama-3.3-70B-Instruct", versions=("0.5.23",))
    short = way(
        listed, "lmsys/SGLang-EAGLE3-Llama-3.3-70B-Instruct-SpecForge", SpeculationMethod.EAGLE3
    )
    assert "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1" in short.changes
    assert any(one.startswith("SPL403") for one in short.doubts)
