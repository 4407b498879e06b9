"""The ways to speculate for a target, the best founded first."""

from __future__ import annotations

import pytest

from speclaunch.engine.facts.facts import Checkpoint
from speclaunch.engine.facts.known_models import ModelPair, index_names
from speclaunch.engine.plan.topics.speculation import DRAFT_PATH
from speclaunch.measure.advice.drafts import SpeculationMethod, ways_for

BARE = Checkpoint("o/target", architectures=("DeepseekV3ForCausalLM",))


def pair(draft: str, algorithm: str, confidence: str = "high", **more: object) -> ModelPair:
    return ModelPair("o/target", draft, algorithm, confidence, is_read=True, **more)  # type: ignore[arg-type]


def order(target: Checkpoint, *pairs: ModelPair) -> list[str]:
    return [way.draft or str(way.method) for way in ways_for(target, pairs)]


def test_ngram_is_always_there() -> None:
    (only,) = ways_for(BARE, ())
    assert only.method is SpeculationMethod.NGRAM and DRAFT_PATH not in only.arguments


@pytest.mark.parametrize(
    ("released", "place", "confidence"), [(True, 0, "high"), (None, 1, "medium")]
)
def test_own_layers_go_first_where_their_weights_are_there(
    released: bool | None, place: int, confidence: str
) -> None:
    target = Checkpoint("o/target", mtp_layers=1, mtp_weights=released)
    found = ways_for(target, (pair("o/head", "EAGLE3"),))
    assert found[place].method is SpeculationMethod.MTP and found[place].confidence == confidence
    assert found[place].draft is None and DRAFT_PATH not in found[place].arguments


def test_own_layers_without_weights_are_no_way() -> None:
    found = ways_for(Checkpoint("o/target", mtp_layers=1, mtp_weights=False), ())
    assert found[-1].method is SpeculationMethod.MTP and found[-1].unusable is not None


def test_from_the_best_founded_to_the_least() -> None:
    assert order(
        BARE,
        pair("o/low", "EAGLE3", "low"),
        pair("o/small", "STANDALONE"),
        pair("o/eagle2", "EAGLE"),
        pair("o/medium", "EAGLE3", "medium"),
        pair("o/dspark", "DSPARK"),
        pair("o/dflash", "DFLASH"),
        pair("o/eagle3", "EAGLE3"),
    ) == [
        "o/eagle3",
        "o/dflash",
        "o/dspark",
        "o/medium",
        "o/eagle2",
        "o/small",
        "NGRAM",
        "o/low",
    ]


def test_a_draft_whose_config_is_known_goes_before_one_of_which_only_the_pair_is() -> None:
    unread = ModelPair("o/target", "o/unread", "EAGLE3", "high")
    assert order(BARE, unread, pair("o/dflash", "DFLASH"))[:2] == ["o/dflash", "o/unread"]


def test_what_sglang_does_not_load_is_listed_and_no_way() -> None:
    found = ways_for(
        BARE,
        (pair("o/spec", "EAGLE3", form="speculators format"), pair("o/peagle", "P-EAGLE")),
    )
    assert [way.unusable is None for way in found] == [True, False, False]
    assert {way.algorithm for way in found[1:]} == {"EAGLE3", None}


def test_the_arguments_are_the_documented_ones() -> None:
    (head, _) = ways_for(BARE, (pair("o/head", "EAGLE3"),))
    assert head.arguments == {
        "speculative_algorithm": "EAGLE3",
        "speculative_num_steps": 5,  # the constant with the least regret in SpecForge's grid
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 6,
        DRAFT_PATH: "o/head",
    }
    assert "has the lowest mean loss in SpecForge's grid" in head.setting_why
    (older, _) = ways_for(BARE, (pair("o/head", "EAGLE"),))
    assert older.arguments["speculative_num_steps"] == 3 and not older.setting_why


def test_another_exports_draft_says_so() -> None:
    (way, _) = ways_for(BARE, (pair("o/head", "EAGLE3", "medium", sibling="o/base"),))
    assert way.why == "published for o/base, another export of the same model as o/target"


@pytest.mark.thorough
def test_published_acceptance_ranks_the_ways_of_the_index() -> None:
    """Each number names its source and conditions; nothing measured is below what is not."""
    targets = 0
    for name in index_names():
        found = [way for way in ways_for(Checkpoint(name)) if way.rank < 90]
        scores = [way.score for way in found if way.score is not None]
        assert scores == sorted(scores, reverse=True)
        assert [way.score is None for way in found] == sorted(way.score is None for way in found)
        for way in found:
            assert all(p.source.url and p.conditions for p in way.published), (name, way.draft)
            assert way.score is None or way.published
        targets += bool(scores)
    assert targets >= 30


def test_a_way_with_numbers_that_do_not_compare_comes_before_one_without() -> None:
    target = Checkpoint("meta-llama/Llama-2-70b-chat-hf")
    first, second, *_ = (way.draft for way in ways_for(target))
    assert first == "yuhuili/EAGLE-llama2-chat-70B"  # a speed-up without an acceptance length
    assert second == "lmzheng/sglang-EAGLE-llama2-chat-70B"
