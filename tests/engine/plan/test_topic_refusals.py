"""The newer topics: refusals, deterministic inference, drafts, graphs, experts; each bound once."""

from __future__ import annotations

import re

import pytest

from speclaunch.engine.facts.facts import Facts
from speclaunch.engine.plan.plan import UnknownValueError
from speclaunch.engine.plan.resolution.working import Working
from speclaunch.engine.plan.topics import attention, gpu, parallel, speculation, target
from speclaunch.engine.plan.topics.algorithms import LIMITED
from speclaunch.engine.plan.topics.parallel import KnownRefusal, beginning
from speclaunch.engine.plan.topics.target import halved
from tests.engine.plan.resolving import CPU, LLAMA, model, plan
from tests.support.loops import rows

DRAFT = "--speculative-draft-model-path d"


@rows(
    "said, message, matches",
    [
        ("It is refused.", "It is refused, as x is 3", True),
        ("(attn_cp_size={}).", "(attn_cp_size=2).", True),
        ("(attn_cp_size={}).", "(attn_cp_size=).", False),
        ("a (b", "a (b", True),
        ("a.c", "abc", False),
    ],
)
def test_the_beginning_of_a_message(said: str, message: str, matches: bool) -> None:
    assert (re.match(beginning(said), message) is not None) is matches


DP = "--tp 4 --dp 4 --enable-dp-attention"


@rows(
    "refusal, version, words, applies",
    [
        (parallel.NGRAM, "0.5.3.post3", f"--speculative-algorithm NGRAM {DP}", True),
        (parallel.NGRAM, "0.5.23", "--speculative-algorithm NGRAM --tp 4", False),
        (parallel.NGRAM, "0.5.23", f"--speculative-algorithm EAGLE {DRAFT} {DP}", False),
        (parallel.DFLASH, "0.5.22", f"--speculative-algorithm DFLASH {DRAFT} {DP}", True),
        (parallel.DFLASH, "0.5.23", f"--speculative-algorithm DFLASH {DRAFT} {DP}", False),
        (parallel.DFLASH_HEAD, "0.5.23", f"--speculative-algorithm DFLASH {DRAFT} {DP}", True),
        (parallel.DFLASH_HEAD, "0.5.22", f"--speculative-algorithm DFLASH {DRAFT} {DP}", False),
        (parallel.DSPARK_HEAD, "0.5.16", f"--speculative-algorithm DSPARK {DRAFT} {DP}", True),
        (
            parallel.DSPARK_HEAD,
            "0.5.17",
            f"--speculative-algorithm DSPARK {DRAFT} --enable-dp-attention",
            True,  # the flag as it was given, for a single rank
        ),
        (
            parallel.DSPARK_HEAD,
            "0.5.18",
            f"--speculative-algorithm DSPARK {DRAFT} --enable-dp-attention",
            False,
        ),
        (parallel.NO_RANKS, "0.5.1.post3", "--enable-dp-attention", True),
        (parallel.NO_RANKS, "0.5.2", "--enable-dp-attention", False),
        (parallel.REPLICAS_TOO, "0.5.23", "--tp 4 --attn-dp-size 2 --dp 2", True),
        (parallel.HEAD_ALONE, "0.5.2", "--enable-dp-lm-head", True),
        (parallel.HEAD_ALONE, "0.5.3.post3", "--enable-dp-lm-head", False),
        (parallel.NODES, "0.5.23", "--tp 4 --nnodes 2 --dp 2", True),
        (parallel.NODES, "0.5.23", "--tp 4 --nnodes 2", False),
    ],
)
def test_dp_attention(refusal: KnownRefusal, version: str, words: str, applies: bool) -> None:
    assert refusal.applies(plan(version, words)) is applies


def test_who_speculates_is_asked_only_where_it_matters() -> None:
    """What nobody can tell of the algorithm leaves rows about any algorithm alone."""
    working = Working(plan("0.5.10.post1", DP).request, Facts(None, None, None))
    working.undecided["speculative_algorithm"] = "nobody knows"
    assert not parallel.HEAD_ALONE.applies(working)
    with pytest.raises(UnknownValueError, match="nobody knows"):
        parallel.NGRAM.applies(working)


def test_every_refusal_names_releases_with_file_and_line() -> None:
    rows = [one for one in vars(parallel).values() if isinstance(one, KnownRefusal)]
    assert len(rows) >= 11
    for row in rows:
        assert re.match(r"sglang 0\.\d+\.\d+\S* \S+\.py:\d+", row.source), row.message


@rows(
    "version, architecture, absorbs, triton",
    [
        ("0.5.4.post3", "DeepseekV3ForCausalLM", True, True),
        ("0.5.3.post3", "DeepseekV3ForCausalLM", False, False),
        ("0.5.6.post2", "PixtralForConditionalGeneration", True, True),
        ("0.5.5.post3", "PixtralForConditionalGeneration", False, False),
        ("0.5.9", "GlmMoeDsaForCausalLM", True, True),
        ("0.5.8.post1", "GlmMoeDsaForCausalLM", False, False),
        ("0.5.18", "Glm4MoeLiteForCausalLM", True, True),
        ("0.5.17", "Glm4MoeLiteForCausalLM", False, False),
        ("0.5.20", "Glm5NextForConditionalGeneration", True, False),
        ("0.5.19", "Glm5NextForConditionalGeneration", False, False),
        ("0.5.23", "DeepseekVL2ForCausalLM", False, False),
    ],
)
def test_deterministic_targets(
    version: str, architecture: str, absorbs: bool, triton: bool
) -> None:
    found = plan(version, target=model(architecture, kv_lora_rank=512))
    assert attention.absorbs(found) is absorbs
    assert (architecture in attention.triton_targets(found)) is triton


def test_deterministic_backends() -> None:
    for version, added in (("0.5.13.post1", "ascend"), ("0.5.16", "fa4")):
        assert added in attention.sharing_backends(plan(version))
    assert "fa4" not in attention.deterministic_backends(plan("0.5.15.post1"))
    newest = plan("0.5.23")
    assert attention.deterministic_backends(newest) - attention.sharing_backends(newest) == {
        "flashinfer",
        "intel_xpu",
    }
    assert attention.is_deterministic(plan("0.5.23", "--rl-on-policy-target fsdp"))
    assert not attention.is_deterministic(newest)


@pytest.mark.parametrize(
    ("version", "candidates"),
    [("0.5.13.post1", (1, 3, 7)), ("0.5.14", (0, 1, 3, 7)), ("0.5.20", (0, 1, 3, 5, 7))],
)
def test_adaptive_candidates(version: str, candidates: tuple[int, ...]) -> None:
    assert speculation.candidate_steps(plan(version)) == candidates
    assert speculation.FIRST_STEPS in candidates


def test_where_a_draft_is_read_from() -> None:
    own = model("LlamaForCausalLMEagle3")
    words = f"--speculative-algorithm EAGLE3 {DRAFT}"
    assert speculation.draft_checkpoint(plan("0.5.23", words, draft=own)) is own
    assert speculation.draft_checkpoint(plan("0.5.23", words)) is None
    with pytest.raises(UnknownValueError, match=speculation.UNKNOWN_DRAFT):
        speculation.draft_of(plan("0.5.23", words))
    itself = "--speculative-algorithm EAGLE3 --speculative-draft-model-path m"
    assert speculation.draft_of(plan("0.5.23", itself, draft=own)) is LLAMA
    assert speculation.own_path(plan("0.5.23", itself)) is None
    assert speculation.own_path(plan("0.5.23", words)) == "d"


@rows(
    "version, backend, draft, runs",
    [
        ("0.5.23", "fa3", model("DFlashDraftModel"), True),
        ("0.5.19", "intel_xpu", model("DFlashDraftModel"), False),
        ("0.5.20", "intel_xpu", model("DFlashDraftModel"), True),
        ("0.5.12.post1", "ascend", model("DFlashDraftModel"), False),
        ("0.5.13.post1", "ascend", model("DFlashDraftModel"), True),
        ("0.5.23", "trtllm_mha", model("DFlashDraftModel"), False),
        ("0.5.23", "trtllm_mha", model("DFlashDraftModel", is_causal=True), True),
        ("0.5.16", "trtllm_mha", model("DFlashDraftModel", is_causal=True), False),
    ],
)
def test_backends_of_dflash(version: str, backend: str, draft: object, runs: bool) -> None:
    found = plan(version, f"--speculative-algorithm DFLASH {DRAFT}", draft=draft)  # type: ignore[arg-type]
    assert speculation.dflash_drafts_on(found, backend) is runs


def test_gemma4_assistants() -> None:
    unified = model("Gemma4UnifiedAssistantForCausalLM")
    assert speculation.gemma4_assistant(plan("0.5.12.post1"), unified) is None
    assert speculation.gemma4_assistant(plan("0.5.13.post1"), unified) == unified.architecture
    assert speculation.gemma4_assistant(plan("0.5.23"), LLAMA) is None


@rows(
    "version, words, decode, prefill",
    [
        ("0.5.23", "", True, True),
        ("0.5.23", "--disable-cuda-graph", False, False),
        ("0.5.23", "--disable-decode-cuda-graph", False, True),
        ("0.5.23", "--cuda-graph-backend-decode disabled", False, True),
        ("0.5.23", "--disable-prefill-cuda-graph", True, False),
        ("0.5.13.post1", "--disable-piecewise-cuda-graph", True, False),
        ("0.5.13.post1", "", True, True),
        ("0.5.9", "", True, False),
        ("0.5.9", "--enable-piecewise-cuda-graph", True, True),
        ("0.5.4.post3", "", True, False),
    ],
)
def test_graphs(version: str, words: str, decode: bool, prefill: bool) -> None:
    found = plan(version, words)
    assert gpu.decode_is_captured(found) is decode
    assert gpu.prefill_is_captured(found) is prefill


def test_a_cpu_has_no_graphs_of_a_gpu() -> None:
    assert not gpu.decode_is_captured(plan("0.5.23", "--device cpu", hardware=CPU))


def test_experts_and_adapters() -> None:
    assert parallel.expert_ranks(plan("0.5.23", "--tp 4 --moe-a2a-backend deepep")) == 4
    assert parallel.expert_ranks(plan("0.5.23", "--tp 4 --ep 2")) == 2
    assert parallel.expert_ranks(plan("0.5.23", "--tp 4")) == 1
    assert target.serves_adapters(plan("0.5.23", "--lora-paths a=b"))
    assert not target.serves_adapters(plan("0.5.23"))


def test_dtypes_states_and_limits() -> None:
    assert halved(LLAMA) == "float16"
    assert halved(model(model_type="gemma3")) == "bfloat16"
    assert not attention.has_states(model("GraniteMoeHybridForCausalLM", layer_types=["attention"]))
    assert attention.has_states(model("GraniteMoeHybridForCausalLM", layer_types=["mamba"]))
    assert attention.has_states(model("FalconH1ForCausalLM"))
    assert attention.backend_buffers(plan("0.5.23"))
    assert {"FROZEN_KV_MTP", "NGRAM", "DSPARK", "STANDALONE"} < LIMITED and "UNO" not in LIMITED
