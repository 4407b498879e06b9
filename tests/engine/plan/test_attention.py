"""Attention backends and pages, at the releases where the engine's rules change.

Sources: `get_default_attn_backend` and the page constraints of each release (0.5.23
arg_groups/model_override_base.py:277 and overrides.py:1143, 0.5.10 server_args.py:2217, 0.4.6
model_executor/model_runner.py:336).
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from speclaunch.deployments.sources.requests import from_words
from speclaunch.engine.facts.facts import Facts
from speclaunch.engine.facts.hardware import Hardware, Vendor
from speclaunch.engine.plan.plan import ChangeKind, Plan, UnknownValueError
from speclaunch.engine.plan.resolve import resolve
from speclaunch.engine.releases.catalogue import load
from tests.engine.plan.resolving import (
    A100,
    B200,
    CPU,
    DEEPSEEK,
    H100,
    LLAMA,
    MI300X,
    changes,
    model,
    plan,
)
from tests.support.loops import rows

CHAIN = (
    "--speculative-algorithm EAGLE3 --speculative-draft-model-path d --speculative-num-steps 3 "
    "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
)
TREE = CHAIN.replace("topk 1", "topk 4").replace("tokens 4", "tokens 8")
DRAFTED = "--speculative-algorithm EAGLE3 --speculative-draft-model-path d"
BACKEND = "attention_backend"


@rows(
    "version, words, machine, backend",
    [
        ("0.5.23", "", H100, "fa3"),
        ("0.5.23", CHAIN, H100, "fa3"),
        ("0.5.23", TREE, H100, "flashinfer"),
        ("0.5.23", "", A100, "flashinfer"),
        ("0.5.5.post3", "", B200, "flashinfer"),
        ("0.5.6.post2", "", B200, "trtllm_mha"),
        ("0.5.23", CHAIN, B200, "trtllm_mha"),
        ("0.5.23", TREE, B200, "flashinfer"),
        ("0.5.23", "", MI300X, "aiter"),
        ("0.4.6.post5", "", MI300X, "aiter"),
    ],
)
def test_the_default_for_heads(version: str, words: str, machine: Hardware, backend: str) -> None:
    assert plan(version, words, hardware=machine).value(BACKEND) == backend


@rows(
    "version, words, backend",
    [
        ("0.5.3.post3", CHAIN, "fa3"),
        ("0.5.4.post3", CHAIN, "fa3"),
        ("0.5.7", CHAIN, "fa3"),
        ("0.5.7", f"{CHAIN} --page-size 1", "fa3"),
        ("0.5.7", f"{CHAIN} --page-size 16", "flashinfer"),
        ("0.5.7", TREE, "flashinfer"),
        ("0.5.8.post1", CHAIN, "fa3"),
    ],
)
def test_a_page_size_that_is_left_out_does_not_matter_to_a_chain(
    version: str, words: str, backend: str
) -> None:
    """0.5.7 utils/common.py:2687; only up to 0.5.4 it had to be 1, which it was by then."""
    assert plan(version, words).value(BACKEND) == backend


def test_a_chain_has_trtllm_mha_on_blackwell() -> None:
    """0.5.7 server_args.py:1534."""
    assert plan("0.5.6.post2", CHAIN, hardware=B200).value(BACKEND) == "trtllm_mha"
    assert plan("0.5.7", CHAIN, hardware=B200).value(BACKEND) == "trtllm_mha"
    assert plan("0.5.7", TREE, hardware=B200).value(BACKEND) == "flashinfer"


@rows(
    "version, words, backend",
    [
        ("0.5.3.post3", "--speculative-algorithm NGRAM", "flashinfer"),
        ("0.5.3.post3", DRAFTED, "flashinfer"),
        ("0.4.6.post5", f"{DRAFTED} --page-size 16", "flashinfer"),
        ("0.5.4.post3", "--speculative-algorithm NGRAM", "fa3"),
        ("0.5.4.post3", DRAFTED, "fa3"),
    ],
)
def test_the_runner_sees_the_topk_that_was_filled_in(
    version: str, words: str, backend: str
) -> None:
    """Up to 0.5.4 model_executor/model_runner.py:545, after the parameters: topk 4 for a Llama,
    10 for NGRAM. From 0.5.4.post1 server_args.py:1057, before them: no topk yet."""
    found = plan(version, words)
    assert found.value(BACKEND) == backend
    told = [(change.kind, change.name) for change in found.changes]
    assert len(told) == len(set(told))  # nothing is resolved twice


@pytest.mark.parametrize(
    ("version", "backend"), [("0.5.4", "flashinfer"), ("0.5.4.post1", "fa3"), ("0.5.6", "fa3")]
)
def test_the_releases_between_those_that_are_held(version: str, backend: str) -> None:
    assert between(version, DRAFTED).value(BACKEND) == backend


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("version", "most", "has_64", "overlap_off"),
    [
        ("0.5.4", 16, False, True),
        ("0.5.4.post1", 24, False, False),
        ("0.5.4.post2", 24, True, False),
    ],
)
def test_graphs_and_spec_v2_of_the_first_0_5_4(
    version: str, most: int, has_64: bool, overlap_off: bool
) -> None:
    """server_args.py:695, 679 and 703; :814 and :838; the variable takes the place of the flag."""
    chosen = between(version, CHAIN, Hardware("l4", Vendor.NVIDIA, 1, 24 << 10, 89))
    assert chosen.value("cuda_graph_max_bs_decode") == most
    sizes = between(version, f"{CHAIN} --cuda-graph-max-bs 80").value("cuda_graph_bs_decode")
    assert (64 in sizes) is has_64
    words = CHAIN.replace("EAGLE3", "EAGLE")
    found = between(version, words, env={"SGLANG_ENABLE_SPEC_V2": "1"})
    assert found.value("disable_overlap_schedule") is overlap_off


def between(
    version: str, words: str, machine: Hardware = H100, env: Mapping[str, str] | None = None
) -> Plan:
    """The plan for a release whose catalogue is that of a later one of its line."""
    catalogue = replace(load(version), version=version)
    request = from_words(["--model-path", "m", *words.split()], env or {}, catalogue)
    return resolve(request, Facts(LLAMA, None, machine))


@rows(
    "version, machine, backend",
    [
        ("0.4.6.post5", H100, "fa3"),
        ("0.4.6.post5", B200, "triton"),
        ("0.5.23", H100, "fa3"),
        ("0.5.23", A100, "triton"),
        ("0.5.3.post3", B200, "trtllm_mla"),
        ("0.5.23", B200, "trtllm_mla"),
    ],
)
def test_the_default_for_latent_attention(version: str, machine: Hardware, backend: str) -> None:
    deepseek = model(
        "DeepseekV3ForCausalLM", kv_lora_rank=512, num_attention_heads=128, context_length=4096
    )
    assert plan(version, target=deepseek, hardware=machine).value(BACKEND) == backend


def test_what_was_given_stays_and_needs_no_facts() -> None:
    found = plan("0.5.23", "--attention-backend triton", target=None, hardware=None)
    assert found.value(BACKEND) == "triton"


def test_unknown_hardware_leaves_the_default_open() -> None:
    with pytest.raises(UnknownValueError, match="hardware"):
        plan("0.5.23", hardware=None).value(BACKEND)


def test_a_cpu_is_asked_for_amx() -> None:
    assert plan("0.4.6.post5", "--device cpu", hardware=CPU).value(BACKEND) == "torch_native"
    with pytest.raises(UnknownValueError, match="AMX"):
        plan("0.5.23", "--device cpu", hardware=CPU).value(BACKEND)


def test_fa3_gives_way_to_triton_for_an_e5m2_cache() -> None:
    found = plan("0.5.23", "--kv-cache-dtype fp8_e5m2")
    assert found.value(BACKEND) == "triton"
    given = plan("0.5.23", "--kv-cache-dtype fp8_e5m2 --attention-backend fa3")
    assert given.value(BACKEND) == "triton"
    assert changes(given)[BACKEND] == ChangeKind.ATTENTION_BACKEND


def test_one_backend_for_both_phases_is_the_backend() -> None:
    words = "--prefill-attention-backend triton --decode-attention-backend triton"
    assert plan("0.5.23", words).value(BACKEND) == "triton"


@rows(
    "version, words, page",
    [
        ("0.4.6.post5", "--attention-backend flashmla", 64),
        ("0.5.23", "--attention-backend flashmla --page-size 16", 64),
        ("0.5.19", "--attention-backend cutlass_mla", 128),
        ("0.5.23", "--attention-backend trtllm_mla", 64),
        ("0.5.23", "--attention-backend trtllm_mla --page-size 32", 32),
        ("0.5.23", "--attention-backend trtllm_mla --page-size 128", 64),
    ],
)
def test_pages_of_latent_attention(version: str, words: str, page: int) -> None:
    assert plan(version, words, target=DEEPSEEK, hardware=B200).value("page_size") == page


@rows(
    "version, words, page",
    [
        ("0.5.16", "--attention-backend trtllm_mha --page-size 128", 64),
        ("0.5.17", "--attention-backend trtllm_mha --page-size 128", 128),
        ("0.5.23", "", 64),
        ("0.5.23", "--attention-backend fa4", 128),
        ("0.5.23", "--attention-backend flashinfer", 1),
        ("0.5.23", "--attention-backend flashinfer --page-size 16", 16),
    ],
)
def test_pages_of_heads(version: str, words: str, page: int) -> None:
    assert plan(version, words, hardware=B200).value("page_size") == page


def test_a_forced_page_is_a_change_that_users_must_know() -> None:
    words = "--attention-backend flashmla --page-size 16"
    found = plan("0.5.23", words, target=DEEPSEEK)
    assert changes(found)["page_size"] == ChangeKind.PAGE_SIZE
    assert "64, not 16" in found.reasons["page_size"].why


@rows(
    "version, architecture, machine, backend",
    [
        ("0.5.3.post3", "GptOssForCausalLM", H100, "fa3"),
        ("0.5.23", "GptOssForCausalLM", B200, "trtllm_mha"),
        ("0.5.23", "GptOssForCausalLM", A100, "triton"),
        ("0.5.23", "Llama4ForConditionalGeneration", H100, "fa3"),
        ("0.5.23", "Gemma4ForCausalLM", H100, "triton"),
        ("0.5.23", "MiMoV2FlashForCausalLM", B200, "fa4"),
    ],
)
def test_models_with_a_choice_of_their_own(
    version: str, architecture: str, machine: Hardware, backend: str
) -> None:
    found = plan(version, target=model(architecture), hardware=machine)
    assert found.value(BACKEND) == backend
    assert architecture in found.reasons[BACKEND].why


@rows(
    "version, words, graphs",
    [
        ("0.5.14", "", "tc_piecewise"),
        ("0.5.14", "--attention-backend torch_native", "disabled"),
        ("0.5.23", "", "breakable"),
        ("0.5.23", "--attention-backend torch_native", "disabled"),
        ("0.5.23", "--enable-two-batch-overlap", "disabled"),
    ],
)
def test_graphs_of_prefill(version: str, words: str, graphs: str) -> None:
    """0.5.23 arg_groups/cuda_graph_hook.py:170 and attention_hook.py:124."""
    assert plan(version, words).value("cuda_graph_backend_prefill") == graphs


@rows("mode, what", [("auto", "torch_native"), ("normal", "deepep in normal mode")])
def test_reason_without_graphs_names_what_excludes_them(mode: str, what: str) -> None:
    words = f"--attention-backend torch_native --moe-a2a-backend deepep --deepep-mode {mode}"
    found = plan("0.5.10.post1", words)
    assert found.value("disable_cuda_graph") is True
    assert found.reasons["disable_cuda_graph"].why == f"{what} runs without CUDA graphs"


def test_deepseek_with_trtllm_mla_has_no_graphs_of_prefill_from_0_5_15() -> None:
    name = "cuda_graph_backend_prefill"
    words = "--attention-backend trtllm_mla"
    assert plan("0.5.23", words, target=DEEPSEEK, hardware=B200).value(name) == "disabled"
    assert plan("0.5.14", words, target=DEEPSEEK, hardware=B200).value(name) == "tc_piecewise"
    asked = f"{words} --cuda-graph-backend-prefill breakable"
    assert plan("0.5.23", asked, target=DEEPSEEK, hardware=B200).value(name) == "breakable"


def test_dp_attention_limits_the_graphs_of_prefill_from_0_5_16() -> None:
    words = "--tp-size 4 --dp-size 4 --enable-dp-attention"
    name = "cuda_graph_max_bs_prefill"
    assert plan("0.5.23", words).value(name) == 2048
    assert plan("0.5.23", words).value("cuda_graph_bs_prefill")[-1] == 2048
    assert plan("0.5.14", words).value(name) == 8192


@pytest.mark.parametrize(
    ("topk", "hardware", "backend"),
    [(1, H100, "fa3"), (4, H100, "flashinfer"), (1, A100, "flashinfer")],
)
def test_llama4_speculates_on_the_default(topk: int, hardware: Hardware, backend: str) -> None:
    """Only 0.4.9.post3 forces fa3 (server_args.py:505); 0.4.9.post6 answers for it, and refuses
    all but a given fa3 (SPL323)."""
    words = (
        "--speculative-algorithm EAGLE3 --speculative-draft-model-path d --speculative-num-steps 3 "
        f"--speculative-eagle-topk {topk} --speculative-num-draft-tokens 4"
    )
    target = model("Llama4ForConditionalGeneration")
    found = plan("0.4.8.post1", words, target=target, hardware=hardware)
    assert found.value("attention_backend") == backend
