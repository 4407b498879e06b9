"""Chunks, graphs, fraction, context and data type, at the releases where the rules change.

The defaults of every GPU are in test_auto_memory.py; here is what else decides them.
"""

from __future__ import annotations

import pytest

from speclaunch.engine.facts.hardware import Hardware, Vendor
from speclaunch.engine.plan.plan import ChangeKind, UnknownValueError
from speclaunch.engine.plan.resolution.graphs import captured_sizes
from tests.engine.plan.resolving import (
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

EAGLE3 = (
    "--speculative-algorithm EAGLE3 --speculative-draft-model-path d --speculative-num-steps 3 "
    "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
)
CHUNK = "chunked_prefill_size"
FRACTION = "mem_fraction_static"
MOST = "cuda_graph_max_bs_decode"
LIST = "cuda_graph_bs_decode"
SMALL = Hardware("t4", Vendor.NVIDIA, 1, 15360, 75)
H200 = Hardware("h200", Vendor.NVIDIA, 8, 143771, 90)


# Before 0.5.3, which the shared data does not reach: 0.4.6 server_args.py:247 to 304,
# 0.4.10 server_args.py:310 to 380.


@rows(
    "version, machine, words, chunk, fraction",
    [
        ("0.4.6.post5", H100, "", 8192, 0.88),
        ("0.4.6.post5", H100, "--tp-size 4", 8192, 0.85),
        ("0.4.6.post5", H100, "--tp-size 8", 8192, 0.81),
        ("0.4.6.post5", SMALL, "", 2048, 0.88),
        ("0.4.10.post2", H100, "", 8192, round((81559 - 10240) / 81559, 3)),
        ("0.4.10.post2", H100, EAGLE3, 8192, round((81559 - 12288) / 81559, 3)),
        ("0.4.10.post2", B200, "", 16384, round((183359 - 32768) / 183359, 3)),
        ("0.5.2", SMALL, "--tp-size 4", 2048, round((15360 - 3.2 * 1024) / 15360, 3)),
    ],
)
def test_before_0_5_3(
    version: str, machine: Hardware, words: str, chunk: int, fraction: float
) -> None:
    found = plan(version, words, hardware=machine)
    assert found.value(CHUNK) == chunk
    assert found.value(FRACTION) == pytest.approx(fraction, abs=1e-9)


def test_0_4_6_leaves_more_on_large_gpus() -> None:
    """server_args.py:262: 48 GiB of them have a fraction of 1, but 18 GiB remain free."""
    fraction = plan("0.4.6.post5", hardware=H200).value(FRACTION)
    assert fraction == pytest.approx((143771 - 18 * 1024) / 143771)


def test_given_sizes_lead_the_rest() -> None:
    """The fraction follows the chunk and the graphs that are given."""
    found = plan("0.5.23", "--chunked-prefill-size 2048 --cuda-graph-max-bs-decode 16")
    # 512 + 2048 * 1.5 + 128 + 16 * 2 + 42 * 8 is below the floor of 10 GiB
    assert found.value(FRACTION) == round((81559 - 10240) / 81559, 3)
    assert found.value(LIST) == [1, 2, 4, 8, 12, 16]
    large = plan("0.5.23", "--chunked-prefill-size 16384")
    assert large.value(FRACTION) == round((81559 - (512 + 24576 + 128 + 512 + 74 * 8)) / 81559, 3)


def test_the_list_for_speculation_is_finer() -> None:
    plain, speculating = plan("0.5.23").value(LIST), plan("0.5.23", EAGLE3).value(LIST)
    assert plain[:5] == [1, 2, 4, 8, 12]
    assert speculating[:8] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert plain[-1] == speculating[-1] == 256


def test_without_padding_every_size_has_a_graph() -> None:
    found = plan("0.5.23", "--disable-cuda-graph-padding --cuda-graph-max-bs-decode 9")
    assert found.value(LIST) == list(range(1, 10))


def test_a_list_that_is_given_sets_the_largest() -> None:
    found = plan("0.5.23", "--cuda-graph-bs-decode 1 2 24")
    assert found.value(MOST) == 24
    assert found.value(LIST) == [1, 2, 24]


def test_the_largest_graph_has_an_entry_from_0_5_10() -> None:
    assert plan("0.5.9", "--cuda-graph-max-bs 30").value(LIST)[-1] == 24
    assert plan("0.5.10.post1", "--cuda-graph-max-bs 30").value(LIST)[-1] == 30


def test_requests_limit_the_graphs_from_0_5_22() -> None:
    words = "--max-running-requests 40"
    assert plan("0.5.21", words).value(MOST) == 256
    assert plan("0.5.22", words).value(MOST) == 40
    assert "40" in plan("0.5.23", words).reasons[MOST].why


def test_qwen3_vl_has_graphs_for_its_requests_from_0_5_20() -> None:
    """0.5.20 arg_groups/model_overrides/qwen3_vl.py:37: large Hopper GPUs alone."""
    target = model(
        "Qwen3VLForConditionalGeneration", model_type="qwen3_vl", vision_config={}, text_config={}
    )
    words = "--max-running-requests 400"
    for version, machine, most in (
        ("0.5.19", H200, 256),
        ("0.5.20", H200, 400),
        ("0.5.23", H200, 400),
    ):
        assert plan(version, words, target=target, hardware=machine).value(MOST) == most
    given = plan("0.5.23", f"{words} --cuda-graph-max-bs-decode 64", target=target, hardware=H200)
    assert given.value(MOST) == 64


@pytest.mark.parametrize(
    ("version", "words", "sizes"),
    [
        ("0.5.23", f"{EAGLE3} --max-running-requests 12", (1, 2, 3, 4, 5, 6, 7, 8, 10, 12)),
        ("0.5.10.post1", f"{EAGLE3} --max-running-requests 5", (1, 2, 3, 4, 5)),
        ("0.5.23", "--cuda-graph-bs-decode 1 2 4", (1, 2, 4)),
    ],
)
def test_no_more_is_captured_than_can_run(version: str, words: str, sizes: tuple[int, ...]) -> None:
    assert captured_sizes(plan(version, words)) == sizes


def test_speculation_captures_up_to_its_48_requests() -> None:
    assert captured_sizes(plan("0.5.14", EAGLE3))[-1] == 48


def test_dp_attention_divides_the_chunk() -> None:
    words = "--tp-size 4 --dp-size 2 --enable-dp-attention"
    for version in ("0.4.6.post5", "0.5.14", "0.5.23"):
        found = plan(version, words)
        assert found.value(CHUNK) == 4096
        assert "2 ranks" in found.reasons[CHUNK].why


def test_disaggregation_decides_what_is_reserved() -> None:
    """0.5.15 and later: a decode server's activations are its requests' draft tokens."""
    words = f"{EAGLE3} --disaggregation-mode decode --max-running-requests 48"
    found = plan("0.5.23", words, hardware=H200)
    assert found.value("disable_radix_cache") is True
    assert "activations of 2048 tokens" in found.reasons[FRACTION].why


def test_deepep_reserves_for_its_buffers() -> None:
    words = "--tp-size 8 --moe-a2a-backend deepep"
    assert "2048 for DeepEP buffers" in plan("0.5.23", words).reasons[FRACTION].why


def test_a_vision_encoder_takes_its_share() -> None:
    """adjust_mem_fraction_for_vlm: ViT-L/14 has 24 layers of 1024, and takes 5 %."""
    vision = {"num_hidden_layers": 24, "hidden_size": 1024}
    target = model("Qwen2VLForConditionalGeneration", vision_config=vision)
    plain = plan("0.5.9", target=model("Qwen2ForCausalLM")).value(FRACTION)
    assert plan("0.5.9", target=target).value(FRACTION) == pytest.approx(plain * 0.95)


def test_latent_attention_takes_more_for_prefill() -> None:
    found = plan("0.5.10.post1", target=DEEPSEEK)
    assert "1536 for prefill graphs with latent attention" in found.reasons[FRACTION].why
    assert found.value("cuda_graph_max_bs_prefill") == 2048


def test_aiter_takes_a_share_for_long_contexts() -> None:
    found = plan("0.5.23", "--mem-fraction-static 0.8", hardware=MI300X)
    assert found.value(FRACTION) == pytest.approx(0.68)
    assert changes(found)[FRACTION] == ChangeKind.FRACTION_LOWERED
    kept = {"SGLANG_AITER_HONOR_EXPLICIT_MEM_FRACTION": "1"}
    assert plan("0.5.23", "--mem-fraction-static 0.8", hardware=MI300X, env=kept).value(
        FRACTION
    ) == pytest.approx(0.8)


# The host's memory: 0.5.23 utils/common.py:911, 0.5.2 utils.py:1406.


def test_a_cpu_has_the_sizes_of_its_memory() -> None:
    found = plan("0.5.23", "--device cpu", hardware=CPU)
    assert found.value(CHUNK) == 8192
    assert plan("0.5.2", "--device cpu", hardware=CPU).value(FRACTION) == 0.88
    bound = {"SGLANG_CPU_OMP_THREADS_BIND": "0-7"}
    assert plan("0.5.23", "--device cpu", hardware=CPU, env=bound).value(FRACTION) == 0.95
    with pytest.raises(UnknownValueError, match="NUMA"):
        plan("0.5.18", "--device cpu", hardware=CPU).value(FRACTION)


def test_unknown_hardware_leaves_the_sizes_open() -> None:
    found = plan("0.5.23", hardware=None)
    for name in (CHUNK, MOST, LIST, FRACTION):
        with pytest.raises(UnknownValueError):
            found.value(name)


# Context and data type: 0.5.23 configs/model_config.py:1291 and :2284.


def test_the_context_is_the_models_own() -> None:
    found = plan("0.5.23")
    assert found.value("context_length") == 131072
    assert found.user_value("context_length") is None
    assert plan("0.5.23", "--context-length 4096").value("context_length") == 4096
    assert plan("0.5.23", target=None).value("context_length") is None


def test_the_context_is_derived_by_the_release() -> None:
    """transformers 5 (0.5.10 and later) reads the scaling elsewhere."""
    scaled = model(context_lengths=(163840, 40960))
    assert plan("0.5.9", target=scaled).value("context_length") == 163840
    assert plan("0.5.10.post1", target=scaled).value("context_length") == 40960


@rows(
    "fields, words, dtype",
    [
        ({"dtype": "bfloat16"}, "", "bfloat16"),
        ({"dtype": "float16"}, "", "float16"),
        ({"dtype": "float32"}, "", "float16"),
        ({"dtype": "float32", "model_type": "gemma2"}, "", "bfloat16"),
        ({}, "", "float16"),
        ({"dtype": "bfloat16"}, "--dtype half", "float16"),
        ({"dtype": "bfloat16"}, "--dtype float32", "float32"),
    ],
)
def test_the_data_type(fields: dict[str, str], words: str, dtype: str) -> None:
    for version in ("0.4.6.post5", "0.5.10.post1", "0.5.23"):
        assert plan(version, words, target=model(**fields)).value("dtype") == dtype


def test_an_unknown_target_leaves_the_data_type_as_given() -> None:
    assert plan("0.5.23", target=None).value("dtype") == "auto"
    assert "dtype" not in plan("0.5.23", target=None).undecided
    assert plan("0.5.23", target=LLAMA).user_value("dtype") is None
