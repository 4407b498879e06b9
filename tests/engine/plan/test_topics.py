"""What the topics tell, release by release: each line and each bound of theirs once."""

from __future__ import annotations

import pytest

from speclaunch.engine.plan.plan import UnknownValueError
from speclaunch.engine.plan.topics import parallel, spec_v2, speculation
from speclaunch.engine.plan.topics.algorithms import algorithm_names
from speclaunch.engine.plan.topics.gpu import draft_in_pool
from speclaunch.engine.plan.topics.target import architecture_of, has_architecture
from tests.engine.plan.resolving import LLAMA, MI300X, model, plan
from tests.support.loops import rows

DRAFT = "--speculative-draft-model-path d"
CHAIN = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
TREE = "--speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8"
SPEC_V2 = "SGLANG_ENABLE_SPEC_V2"


def speculating(algorithm: str, rest: str = CHAIN) -> str:
    return f"--speculative-algorithm {algorithm} {DRAFT} {rest}"


@rows(
    "version, words, ranks, replicas",
    [
        ("0.4.6.post5", "", 1, 1),
        ("0.4.6.post5", "--tp 8 --dp 4", 1, 4),
        ("0.4.6.post5", "--tp 8 --dp 4 --enable-dp-attention", 4, 1),
        ("0.5.21", "--tp 8 --dp 4 --enable-dp-attention", 4, 1),
        ("0.5.21", "--tp 8 --enable-dp-attention", 1, 1),
        ("0.5.22", "--tp 8 --dp 4 --enable-dp-attention", 4, 1),
        ("0.5.22", "--tp 8 --dp 4", 1, 4),
        ("0.5.23", "--tp 8 --attn-dp-size 4", 4, 1),
        ("0.5.23", "--tp 8 --attn-dp-size 4 --dp 2", 4, 2),
        ("0.5.23", "--tp 8 --enable-dp-attention", 1, 1),
    ],
)
def test_parallel(version: str, words: str, ranks: int, replicas: int) -> None:
    found = plan(version, words)
    assert parallel.attention_ranks(found) == ranks
    assert parallel.replicas(found) == replicas
    assert parallel.is_on(found) is (ranks > 1)


@pytest.mark.parametrize("size", ["0", "-2", "70000"])
def test_what_is_no_count_is_not_known(size: str) -> None:
    found = plan("0.5.14", f"--dp {size}")
    with pytest.raises(UnknownValueError, match=f"`dp_size` is {size}"):
        parallel.replicas(found)


@rows(
    "version, words, refusal",
    [
        ("0.5.23", speculating("EAGLE3"), None),
        ("0.5.23", speculating("EAGLE3", ""), None),
        ("0.5.13.post1", speculating("EAGLE"), None),
        ("0.5.23", "", "speculation is off"),
        (
            "0.5.23",
            speculating("STANDALONE"),
            "only EAGLE and EAGLE3 support adaptive speculation, not STANDALONE",
        ),
        (
            "0.5.23",
            speculating("EAGLE3", TREE),
            "adaptive speculation needs speculative_eagle_topk 1, not 4",
        ),
        # before 0.5.14 it is asked once the engine has chosen: a Llama gets a tree of 4
        (
            "0.5.13.post1",
            speculating("EAGLE3", ""),
            "adaptive speculation needs speculative_eagle_topk 1, not 4",
        ),
        (
            *("0.5.23", f"{speculating('EAGLE3')} --tp 8 --attn-dp-size 4"),
            "DP attention ranks would not agree on the steps",
        ),
        (
            *("0.5.11", speculating("EAGLE3")),
            "0.5.11 supports adaptive speculation only without the overlap schedule",
        ),
        ("0.5.11", f"{speculating('EAGLE3')} --disable-overlap-schedule", None),
        ("0.5.12.post1", speculating("EAGLE3"), None),
        *(
            ("0.5.23", f"{speculating('EAGLE3')} --{name.replace('_', '-')}", f"{name} does not")
            for name in ("enable_multi_layer_eagle", "enable_two_batch_overlap", "enable_pdmux")
        ),
    ],
)
def test_adaptive(version: str, words: str, refusal: str | None) -> None:
    asked = f"{words} --speculative-adaptive"
    found = plan(version, asked)
    said = speculation.adaptive_refusal(found)
    assert said == refusal or (refusal is not None and said is not None and refusal in said)
    assert found.value("speculative_adaptive") is (refusal is None)
    fills = refusal is None and version not in ("0.5.11", "0.5.12.post1", "0.5.13.post1")
    assert speculation.adaptive_fills_parameters(found) is fills
    assert not speculation.adaptive_fills_parameters(plan(version, words))


@rows(
    "version, words, env, would, runs",
    [
        ("0.5.2", speculating("EAGLE"), "", False, False),
        ("0.5.3.post3", speculating("EAGLE"), "", False, False),
        ("0.5.3.post3", f"{speculating('EAGLE')} --enable-beta-spec", "", True, True),
        ("0.5.4.post3", speculating("EAGLE"), "1", True, True),
        ("0.5.4.post3", speculating("EAGLE"), "", False, False),
        # the switch turns the overlap on for EAGLE at once, for EAGLE3 from 0.5.7
        ("0.5.6.post2", f"{speculating('EAGLE')} --disable-overlap-schedule", "1", True, True),
        ("0.5.6.post2", f"{speculating('EAGLE3')} --disable-overlap-schedule", "1", False, False),
        ("0.5.7", f"{speculating('EAGLE3')} --disable-overlap-schedule", "1", True, True),
        ("0.5.7", speculating("STANDALONE"), "1", False, False),
        ("0.5.8.post1", speculating("STANDALONE"), "1", True, True),
        ("0.5.10.post1", speculating("EAGLE3"), "", False, False),
        ("0.5.11", speculating("EAGLE3"), "", True, True),
        ("0.5.11", speculating("EAGLE3", TREE), "", True, False),
        ("0.5.11", speculating("EAGLE3"), "0", False, False),
        ("0.5.12.post1", f"{speculating('EAGLE3')} --disable-overlap-schedule", "", False, False),
        ("0.5.12.post1", "--speculative-algorithm NGRAM", "", False, False),
        ("0.5.13.post1", f"{speculating('EAGLE3')} --disable-overlap-schedule", "", False, True),
        ("0.5.13.post1", "--speculative-algorithm NGRAM", "", False, False),
        ("0.5.14", "--speculative-algorithm NGRAM", "", True, True),
        ("0.5.14", "", "", False, False),
    ],
)
def test_spec_v2(version: str, words: str, env: str, would: bool, runs: bool) -> None:
    found = plan(version, words, env={SPEC_V2: env} if env else None)
    assert spec_v2.would_run(found) is would
    assert spec_v2.runs(found) is runs


def test_the_draft_is_paid_from_the_pool_from_0_5_14() -> None:
    for version, inside in (("0.4.6.post5", False), ("0.5.13.post1", False), ("0.5.14", True)):
        assert draft_in_pool(plan(version)) is inside


def test_the_names_of_algorithms() -> None:
    assert algorithm_names(plan("0.5.1.post3")) == {"EAGLE", "EAGLE3", "NEXTN"}
    assert "STANDALONE" in algorithm_names(plan("0.5.2"))
    assert {"NGRAM", "DFLASH"} & algorithm_names(plan("0.5.10.post1")) == {"NGRAM"}
    assert "UNO" in algorithm_names(plan("0.5.20")) - algorithm_names(plan("0.5.19"))


def test_a_rare_architecture() -> None:
    rare = ("MiMoV2ForCausalLM",)
    assert not has_architecture(plan("0.5.23"), rare)
    assert has_architecture(plan("0.5.23", target=model(rare[0])), rare)
    assert not has_architecture(plan("0.5.23", target=None), rare)  # it is called m
    with pytest.raises(UnknownValueError, match="the target checkpoint is unknown"):
        has_architecture(plan("0.5.23", "--model-path XiaomiMiMo/MiMo-V2", target=None), rare)
    assert not has_architecture(plan("0.5.23", "--model-path XiaomiMiMo/MiMo", target=None), ())


def test_the_architecture_that_the_engine_dispatches_on() -> None:
    v32 = model("DeepseekV32ForCausalLM")
    assert architecture_of(plan("0.5.23", target=v32)) == "DeepseekV32ForCausalLM"
    assert architecture_of(plan("0.5.11", target=v32)) == "DeepseekV3ForCausalLM"
    assert architecture_of(plan("0.5.11", target=LLAMA)) == "LlamaForCausalLM"


@pytest.mark.parametrize("version", ["0.5.8.post1", "0.5.23"])
def test_olmo_3_has_the_class_and_the_backend_of_olmo_2(version: str) -> None:
    found = plan(version, "--enable-deterministic-inference", target=model("Olmo3ForCausalLM"))
    assert architecture_of(found) == "Olmo2ForCausalLM"
    on_amd = plan(version, target=model("Olmo3ForCausalLM"), hardware=MI300X)
    assert on_amd.value("attention_backend") == "triton"


@pytest.mark.parametrize("version", ["0.5.12.post1", "0.5.21", "0.5.23"])
def test_an_old_name_for_one_phase_is_the_same_backend_for_both(version: str) -> None:
    words = "--attention-backend triton --prefill-attention-backend dsv4"
    found = plan(version, f"{words} --decode-attention-backend compressed")
    assert found.value("attention_backend") == "dsv4"
