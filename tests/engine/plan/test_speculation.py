"""Algorithm, draft, parameters and schedule, at the releases where the engine's rules change."""

from __future__ import annotations

from typing import Any

import pytest

from speclaunch.engine.facts.facts import Checkpoint
from speclaunch.engine.plan.plan import ChangeKind, UnknownValueError
from speclaunch.engine.plan.topics import spec_v2
from tests.engine.plan.resolving import B200, CPU, DEEPSEEK, LLAMA, changes, model, plan
from tests.support.loops import rows

DRAFT = "--speculative-draft-model-path d"
EAGLE3 = f"--speculative-algorithm EAGLE3 {DRAFT}"
EAGLE = f"--speculative-algorithm EAGLE {DRAFT}"
NEXTN = f"--speculative-algorithm NEXTN {DRAFT}"
CHAIN = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
TREE = "--speculative-num-steps 5 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8"


def three(found: Any) -> tuple[Any, Any, Any]:
    return (
        found.value("speculative_num_steps"),
        found.value("speculative_eagle_topk"),
        found.value("speculative_num_draft_tokens"),
    )


# The algorithm: 0.4.6 server_args.py:374, 0.5.12 server_args.py:3560, 0.5.23
# arg_groups/speculative_hook.py:87.


@rows("version", ["0.4.6.post5", "0.5.3.post3", "0.5.14", "0.5.23"])
def test_nextn_is_eagle(version: str) -> None:
    found = plan(version, "--speculative-algorithm NEXTN", target=DEEPSEEK)
    assert found.algorithm == "EAGLE"


def test_hidden_states_that_are_returned_are_not_drafted_from() -> None:
    asked = "--speculative-algorithm EAGLE3 --enable-return-aux-hidden-states"
    found = plan("0.5.23", asked)
    assert found.algorithm is None
    assert found.value("max_running_requests") is None


def test_any_case_is_as_good_from_0_5_12() -> None:
    assert plan("0.5.23", "--speculative-algorithm eagle3").algorithm == "EAGLE3"
    assert plan("0.5.12.post1", "--speculative-algorithm dflash").algorithm == "DFLASH"


@rows(
    "version, architecture, algorithm",
    [
        ("0.5.12.post1", "Gemma4AssistantForCausalLM", "FROZEN_KV_MTP"),
        ("0.5.12.post1", "Gemma4UnifiedAssistantForCausalLM", "EAGLE"),
        ("0.5.13.post1", "Gemma4UnifiedAssistantForCausalLM", "FROZEN_KV_MTP"),
        ("0.5.11", "Gemma4AssistantForCausalLM", "EAGLE"),
    ],
)
def test_a_gemma_4_assistant_freezes_the_cache(
    version: str, architecture: str, algorithm: str
) -> None:
    words = f"--speculative-algorithm NEXTN {DRAFT}"
    found = plan(version, words, target=model("Gemma4ForCausalLM"), draft=model(architecture))
    assert found.algorithm == algorithm


# The draft: 0.5.23 arg_groups/speculative_hook.py:1121, 0.4.6 server_args.py:394.


def test_targets_with_mtp_layers_are_their_own_draft() -> None:
    path = "speculative_draft_model_path"
    assert plan("0.5.23", "--speculative-algorithm EAGLE", target=DEEPSEEK).value(path) == "m"
    assert plan("0.5.23", "--speculative-algorithm EAGLE").value(path) is None
    glm = model("Glm4MoeForCausalLM")
    assert plan("0.4.6.post5", "--speculative-algorithm EAGLE", target=glm).value(path) is None
    assert plan("0.5.3.post3", "--speculative-algorithm EAGLE", target=glm).value(path) == "m"


def test_an_unknown_target_leaves_the_draft_open() -> None:
    found = plan("0.5.23", "--speculative-algorithm EAGLE", target=None)
    with pytest.raises(UnknownValueError):
        found.value("speculative_draft_model_path")


def test_the_drafts_revision_and_quantization() -> None:
    words = f"{EAGLE3} --revision r2 --quantization fp8"
    late, early = plan("0.5.23", words), plan("0.5.5.post3", words)
    assert late.value("speculative_draft_model_revision") == "main"
    assert changes(late)["speculative_draft_model_revision"] == ChangeKind.DRAFT_REVISION
    assert early.value("speculative_draft_model_revision") is None
    assert late.value("speculative_draft_model_quantization") == "fp8"
    own = plan("0.5.23", f"{words} --speculative-draft-model-quantization unquant")
    assert own.value("speculative_draft_model_quantization") is None


# Steps, topk and tokens when none is given: auto_choose_speculative_params of each release.


@rows(
    "version, architecture, chosen",
    [
        ("0.4.6.post5", "LlamaForCausalLM", (5, 4, 8)),
        ("0.5.23", "LlamaForCausalLM", (5, 4, 8)),
        ("0.4.6.post5", "DeepseekV3ForCausalLM", (5, 4, 8)),
        ("0.4.10.post2", "DeepseekV3ForCausalLM", (3, 1, 4)),
        ("0.5.23", "DeepseekV3ForCausalLM", (3, 1, 4)),
        ("0.5.7", "Qwen2ForCausalLM", (5, 4, 8)),
        ("0.5.8.post1", "Qwen2ForCausalLM", (3, 1, 4)),
        ("0.5.23", "Qwen2ForCausalLM", (3, 1, 4)),
        ("0.5.23", "Grok1ForCausalLM", (5, 4, 8)),
    ],
)
def test_the_engine_chooses_by_architecture(
    version: str, architecture: str, chosen: tuple[int, int, int]
) -> None:
    found = plan(version, f"--speculative-algorithm EAGLE {DRAFT}", target=model(architecture))
    assert three(found) == chosen
    assert {change.kind for change in found.changes} >= {ChangeKind.CHOSEN_PARAMETERS}
    assert architecture in found.reasons["speculative_num_steps"].why


def test_standalone_has_one_default_from_0_5_2() -> None:
    words = f"--speculative-algorithm STANDALONE {DRAFT}"
    assert three(plan("0.5.2", words)) == (3, 1, 4)
    assert three(plan("0.5.23", words)) == (3, 1, 4)


def test_a_chain_verifies_one_more_token_than_it_has_steps() -> None:
    wrong = "--speculative-num-steps 4 --speculative-eagle-topk 1 --speculative-num-draft-tokens 9"
    for version in ("0.4.6.post5", "0.5.10.post1", "0.5.23"):
        found = plan(version, f"{EAGLE3} {wrong}")
        assert three(found) == (4, 1, 5)
        assert changes(found)["speculative_num_draft_tokens"] == ChangeKind.CHAIN_TOKENS
        assert "5 tokens" in found.reasons["speculative_num_draft_tokens"].why
    assert three(plan("0.5.23", f"{EAGLE3} {TREE}")) == (5, 4, 8)


def test_what_the_engine_refuses_stays_as_given() -> None:
    found = plan("0.5.23", f"{EAGLE3} --speculative-eagle-topk 4")
    assert three(found) == (None, 4, None)


def test_0_4_6_has_no_tree_with_pages() -> None:
    words = f"{EAGLE3} {TREE} --page-size 16"
    assert three(plan("0.4.6.post5", words)) == (5, 1, 6)
    assert three(plan("0.4.10.post2", words)) == (5, 4, 8)


# NGRAM: 0.5.3 server_args.py:1283, 0.5.10 and 0.5.14 where it changes, 0.5.23 speculative_hook:1312.


@rows(
    "version, words, expected",
    [
        ("0.5.3.post3", "", (None, 10, 12)),
        ("0.5.9", "--speculative-ngram-max-match-window-size 18", (None, 10, 18)),
        ("0.5.10.post1", "", (None, 10, 12)),
        ("0.5.13.post1", "", (None, 10, 12)),
        ("0.5.14", "", (1, 10, 12)),
        ("0.5.23", "--speculative-ngram-max-bfs-breadth 4", (3, 4, 12)),
        ("0.5.23", "--speculative-num-draft-tokens 40", (4, 10, 40)),
    ],
)
def test_ngram(version: str, words: str, expected: tuple[Any, Any, Any]) -> None:
    assert three(plan(version, f"--speculative-algorithm NGRAM {words}")) == expected


def test_ngrams_topk_is_its_breadth() -> None:
    found = plan("0.5.23", "--speculative-algorithm NGRAM --speculative-eagle-topk 2")
    assert found.value("speculative_eagle_topk") == 10
    assert changes(found)["speculative_eagle_topk"] == ChangeKind.NGRAM_TOPK


# DFLASH and DSPARK: one step, one branch, the tokens of the draft's block.


def block(**config: Any) -> Checkpoint:
    size = config.get("block_size")
    return Checkpoint("d", config=config, block_size=size if isinstance(size, int) else None)


@rows(
    "words, draft, tokens",
    [
        ("", block(block_size=8), 8),
        ("", block(block_size=8, dflash_config={"block_size": 10}), 10),
        ("", block(hidden_size=4096), 16),
        ("--speculative-dflash-block-size 6", block(block_size=8), 6),
        ("--speculative-num-draft-tokens 5", block(block_size=8), 5),
    ],
)
def test_dflash_verifies_its_block(words: str, draft: Checkpoint, tokens: int) -> None:
    for version in ("0.5.11", "0.5.23"):
        found = plan(version, f"--speculative-algorithm DFLASH {DRAFT} {words}", draft=draft)
        assert three(found) == (1, 1, tokens)


def test_dflash_has_no_steps_and_no_tree() -> None:
    words = f"--speculative-algorithm DFLASH {DRAFT} {TREE}"
    found = plan("0.5.23", words, draft=block(block_size=8))
    assert three(found) == (1, 1, 8)
    assert changes(found)["speculative_num_steps"] == ChangeKind.ONE_BLOCK


def test_dspark_verifies_its_block_and_one_more() -> None:
    words = f"--speculative-algorithm DSPARK {DRAFT}"
    assert three(plan("0.5.23", words, draft=block(block_size=7))) == (1, 1, 8)
    assert three(plan("0.5.23", words, draft=block(hidden_size=1))) == (1, 1, 8)
    with pytest.raises(UnknownValueError):
        plan("0.5.23", words).value("speculative_num_draft_tokens")


# Requests: 0.4.6 server_args.py:384, 0.5.23 speculative_hook.py:1084.


@rows("version", ["0.4.6.post5", "0.5.3.post3", "0.5.14", "0.5.23"])
def test_speculation_runs_48_requests(version: str) -> None:
    name = "max_running_requests"
    assert plan(version, f"{EAGLE3} {CHAIN}").value(name) == 48
    assert plan(version).value(name) is None
    assert plan(version, f"{EAGLE3} {CHAIN} --max-running-requests 200").value(name) == 200


# The overlapped schedule and mixed chunks.


@rows(
    "version, words, off",
    [
        ("0.4.6.post5", CHAIN, True),
        ("0.5.2", CHAIN, True),
        ("0.5.7", CHAIN, True),
        ("0.5.10.post1", CHAIN, True),
        ("0.5.11", CHAIN, False),
        ("0.5.11", TREE, True),
        ("0.5.12.post1", TREE, True),
        ("0.5.13.post1", TREE, False),
        ("0.5.14", TREE, False),
        ("0.5.23", TREE, False),
        ("0.5.23", f"{CHAIN} --pp-size 2", True),
    ],
)
def test_the_overlapped_schedule(version: str, words: str, off: bool) -> None:
    found = plan(version, f"{EAGLE3} {words}")
    assert found.value("disable_overlap_schedule") is off


def test_spec_v2_is_a_switch_up_to_0_5_12() -> None:
    on, off = {"SGLANG_ENABLE_SPEC_V2": "1"}, {"SGLANG_ENABLE_SPEC_V2": "0"}
    for version, worker in (("0.5.6.post2", True), ("0.5.7", True)):
        found = plan(version, f"{EAGLE3} {CHAIN}", env=on)
        assert spec_v2.runs(found) is worker
    assert spec_v2.runs(plan("0.5.11", f"{EAGLE3} {CHAIN}", env=off)) is False
    assert spec_v2.runs(plan("0.5.14", f"{EAGLE3} {CHAIN}", env=off)) is True


def test_a_variable_that_is_no_boolean_has_its_default() -> None:
    """environ.py of 0.5.12: EnvBool raises ValueError for it, and `get` returns the default."""
    for text in ("", "on", " 0"):
        found = plan("0.5.12", f"{EAGLE3} {CHAIN}", env={spec_v2.VARIABLE: text})
        assert spec_v2.runs(found) is True, text


@rows(
    "version, words, architecture, env, requested, runs",
    [
        # 0.5.4 and 0.5.6 leave the overlap as it is for EAGLE3, and take EAGLEWorkerV2 with it
        # (0.5.3 managers/scheduler.py:669, 0.5.6 server_args.py:1745)
        ("0.5.4.post3", f"{EAGLE3} {CHAIN}", "LlamaForCausalLM", "1", True, True),
        ("0.5.6.post2", f"{EAGLE3} {CHAIN}", "LlamaForCausalLM", "1", True, True),
        ("0.5.6.post2", f"{EAGLE3} {CHAIN}", "LlamaForCausalLM", "0", False, False),
        (
            *("0.5.6.post2", f"{EAGLE3} {CHAIN} --disable-overlap-schedule"),
            *("LlamaForCausalLM", "1", True, False),
        ),
        # the target sets the variable, by the word that was written: NEXTN is not EAGLE yet
        # (0.5.10 server_args.py:1794 comes before :2985)
        ("0.5.9", f"{EAGLE} {CHAIN}", "MiMoV2FlashForCausalLM", "0", True, True),
        ("0.5.9", f"{NEXTN} {CHAIN}", "MiMoV2FlashForCausalLM", "0", False, False),
        # 0.5.12 arg_groups/deepseek_v4_hook.py:44
        ("0.5.12.post1", f"{EAGLE} {CHAIN}", "DeepseekV4ForCausalLM", "0", True, True),
        ("0.5.12.post1", f"{EAGLE} {CHAIN}", "LlamaForCausalLM", "0", False, False),
        ("0.5.13.post1", f"{EAGLE} {CHAIN}", "DeepseekV4ForCausalLM", "0", True, True),
    ],
)
def test_spec_v2_is_told_once(
    version: str, words: str, architecture: str, env: str, requested: bool, runs: bool
) -> None:
    target = model(architecture, dtype="bfloat16", context_length=131072)
    found = plan(version, words, target=target, env={"SGLANG_ENABLE_SPEC_V2": env})
    assert spec_v2.is_requested(found) is requested
    assert spec_v2.runs(found) is runs
    assert found.value("disable_overlap_schedule") is not runs


def test_speculation_on_a_cpu_has_no_overlap_from_0_5_16() -> None:
    words = "--device cpu --speculative-algorithm NGRAM"
    for version, off in (("0.5.14", False), ("0.5.16", True), ("0.5.23", True)):
        found = plan(version, words, hardware=CPU)
        assert found.value("disable_overlap_schedule") is off


@rows(
    "version, algorithm, mixed",
    [
        ("0.4.6.post5", "EAGLE3", True),
        ("0.4.10.post2", "EAGLE3", False),
        ("0.5.18", "EAGLE3", False),
        ("0.5.19", "EAGLE3", True),
        ("0.5.23", "EAGLE3", True),
        ("0.5.23", "NGRAM", False),
        ("0.5.23", "STANDALONE", False),
    ],
)
def test_mixed_chunks(version: str, algorithm: str, mixed: bool) -> None:
    words = f"--speculative-algorithm {algorithm} {DRAFT} --enable-mixed-chunk"
    assert plan(version, words).value("enable_mixed_chunk") is mixed


def test_several_draft_layers_take_their_own_worker() -> None:
    mimo = model("MiMoV2FlashForCausalLM")
    words = f"--speculative-algorithm EAGLE {CHAIN}"
    name = "enable_multi_layer_eagle"
    assert plan("0.5.23", words, target=mimo, hardware=B200).value(name) is True
    assert not plan("0.5.23", words).value(name)


# Adaptive speculation and block verification.


def test_adaptive_speculation_chooses_a_chain() -> None:
    found = plan("0.5.23", f"{EAGLE3} --speculative-adaptive")
    assert three(found) == (3, 1, 4)
    assert found.value("speculative_adaptive") is True
    tree = plan("0.5.23", f"{EAGLE3} {TREE} --speculative-adaptive")
    assert tree.value("speculative_adaptive") is False
    assert changes(tree)["speculative_adaptive"] == ChangeKind.ADAPTIVE_OFF


def test_block_verification_samples_by_rejection_from_0_5_22() -> None:
    words = f"{EAGLE3} --speculative-use-block-verification"
    assert plan("0.5.23", words).value("speculative_use_rejection_sampling") is True


# A DFLASH draft's own attention backend (0.5.15 and later).


@rows(
    "version, given, found",
    [
        ("0.5.14", "", None),
        ("0.5.18", "--attention-backend fa3", "fa3"),
        ("0.5.18", "--attention-backend flashmla", "flashinfer"),
        ("0.5.23", "--speculative-draft-attention-backend triton", "triton"),
    ],
)
def test_the_backend_of_a_dflash_draft(version: str, given: str, found: str | None) -> None:
    words = f"--speculative-algorithm DFLASH {DRAFT} {given}"
    value = plan(version, words, draft=block(block_size=8)).value(
        "speculative_draft_attention_backend"
    )
    assert value == found


def test_the_target_of_a_recipe_is_not_asked_for_a_fact_it_need_not_have() -> None:
    """With steps, topk and tokens given nothing depends on the target's architecture."""
    assert three(plan("0.5.23", f"{EAGLE3} {TREE}", target=None)) == (5, 4, 8)
    assert three(plan("0.5.23", f"{EAGLE3} {TREE}", target=LLAMA)) == (5, 4, 8)
