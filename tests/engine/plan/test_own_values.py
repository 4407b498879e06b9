"""Values that the engine decides by the target's model, by the number of ranks, or by the device."""

from __future__ import annotations

import pytest

from speclaunch.engine.facts.facts import Checkpoint
from speclaunch.engine.facts.hardware import Hardware
from tests.engine.plan.resolving import B200, H100, LLAMA, MI300X, model, plan
from tests.support.loops import rows

DRAFT = "speculative_draft_attention_backend"
NEMOTRON = model("NemotronHForCausalLM")
M3 = "MiniMaxM3SparseForConditionalGeneration"
M3_NVFP4 = model(M3, quantization_config={"quant_method": "minimax_m3_nvfp4"})
_EAGLE = "--speculative-algorithm EAGLE --speculative-draft-model-path d --speculative-num-steps 3"
_CHAIN = f"{_EAGLE} --speculative-eagle-topk 1"
_TREE = f"{_EAGLE} --speculative-eagle-topk 4 --speculative-num-draft-tokens 8"
_DSPARK = "--speculative-algorithm DSPARK --speculative-draft-model-path d"


@rows(
    "version, words, hardware, expected",
    [
        ("0.5.23", _CHAIN, B200, "trtllm_mha"),
        ("0.5.19", _CHAIN, B200, "trtllm_mha"),
        ("0.5.18", _CHAIN, B200, None),
        ("0.5.23", _TREE, B200, "flashinfer"),
        ("0.5.23", _CHAIN, H100, None),
        ("0.5.23", f"{_CHAIN} --attention-backend flashinfer", B200, None),
        ("0.5.23", f"{_CHAIN} --speculative-draft-attention-backend triton", B200, "triton"),
        ("0.5.23", "", B200, None),
    ],
)
def test_the_draft_of_nemotron_h(
    version: str, words: str, hardware: Hardware, expected: str | None
) -> None:
    assert plan(version, words, target=NEMOTRON, hardware=hardware).value(DRAFT) == expected


@pytest.mark.parametrize(
    ("version", "words", "hardware", "expected"),
    [
        ("0.5.23", _DSPARK, B200, "trtllm_mha"),
        ("0.5.22", _DSPARK, B200, None),
    ],
)
def test_the_draft_of_minimax_m3(
    version: str, words: str, hardware: Hardware, expected: str | None
) -> None:
    assert plan(version, words, target=M3_NVFP4, hardware=hardware).value(DRAFT) == expected
    assert plan(version, words, target=model(M3), hardware=hardware).value(DRAFT) is None


def test_the_draft_of_kimi_k3() -> None:
    target = model("KimiK3ForConditionalGeneration")
    assert plan("0.5.17", _DSPARK, target=target, hardware=B200).value(DRAFT) == "trtllm_mha"
    assert plan("0.5.17", _DSPARK, target=target, hardware=H100).value(DRAFT) is None
    assert plan("0.5.16", _DSPARK, target=target, hardware=B200).value(DRAFT) is None


@rows(
    "version, words, expected",
    [
        ("0.5.23", "", False),
        ("0.5.22", "", False),
        ("0.5.23", "--dp-size 2", True),
        ("0.5.23", "--tp-size 2 --attn-dp-size 2", True),
        ("0.5.23", "--tp-size 2 --dp-size 2 --enable-dp-attention", True),
        ("0.5.21", "", False),
    ],
)
def test_an_lm_head_of_its_own_needs_ranks(version: str, words: str, expected: bool) -> None:
    found = plan(version, f"--enable-dp-lm-head {words}")
    assert found.value("enable_dp_lm_head") is expected


@rows(
    "version, words, radix_off, overlap_off",
    [
        ("0.5.8.post1", _CHAIN, True, True),
        ("0.5.8.post1", "", False, True),
        ("0.5.7", _CHAIN, False, True),
        ("0.5.7", "", False, True),
        ("0.5.7", "--attention-backend trtllm_mha", True, False),
        ("0.5.7", "--disable-radix-cache", True, False),
        ("0.5.5.post3", "", False, False),
    ],
)
def test_cached_states_of_nemotron_h(
    version: str, words: str, radix_off: bool, overlap_off: bool
) -> None:
    found = plan(version, words, target=NEMOTRON, hardware=B200)
    assert found.value("disable_radix_cache") is radix_off
    assert found.value("disable_overlap_schedule") is overlap_off


@rows(
    "version, words, hardware, expected",
    [
        ("0.5.18", f"{_CHAIN} --disable-radix-cache", B200, "auto"),
        ("0.5.19", f"{_CHAIN} --disable-radix-cache", B200, "extra_buffer"),
        ("0.5.23", f"{_CHAIN} --disaggregation-mode decode", B200, "extra_buffer"),
        ("0.5.23", f"{_CHAIN} --linear-attn-backend flashinfer", B200, "extra_buffer"),
        ("0.5.23", f"{_TREE} --linear-attn-backend flashinfer", B200, "no_buffer"),
        ("0.5.23", f"{_CHAIN} --disable-radix-cache", H100, "auto"),
        ("0.5.23", f"{_CHAIN} --disable-radix-cache --attention-backend fa4", B200, "auto"),
        ("0.5.23", "--disable-radix-cache", B200, "auto"),
        (
            "0.5.23",
            f"{_CHAIN} --disable-radix-cache --mamba-radix-cache-strategy no_buffer",
            B200,
            "no_buffer",
        ),
    ],
)
def test_the_states_of_nemotron_h(
    version: str, words: str, hardware: Hardware, expected: str
) -> None:
    found = plan(version, words, target=NEMOTRON, hardware=hardware)
    assert found.value("mamba_radix_cache_strategy") == expected


@pytest.mark.parametrize(("version", "radix_off"), [("0.5.10.post1", False), ("0.5.11", True)])
def test_amd_gpus_speculate_without_cached_states(version: str, radix_off: bool) -> None:
    found = plan(version, _CHAIN, target=model("FalconH1ForCausalLM"), hardware=MI300X)
    assert found.value("disable_radix_cache") is radix_off


@rows(
    "version, target, strategy",
    [
        ("0.5.12.post1", NEMOTRON, "no_buffer"),  # its branch calls a hook of another file
        ("0.5.14", NEMOTRON, "extra_buffer"),
        (
            "0.5.23",
            model("GraniteMoeHybridForCausalLM", layer_types=["mamba", "attention"]),
            "extra_buffer",
        ),
        ("0.5.23", model("GraniteMoeHybridForCausalLM", layer_types=["attention"]), "auto"),
    ],
)
def test_states_by_a_hook_or_a_condition(version: str, target: Checkpoint, strategy: str) -> None:
    found = plan(version, target=target, hardware=H100)
    assert found.value("mamba_radix_cache_strategy") == strategy
    assert found.value("disable_overlap_schedule") is (strategy == "no_buffer")


def test_states_that_are_not_cached_let_the_schedule_overlap() -> None:
    words = "--attention-backend trtllm_mha --disable-overlap-schedule"
    found = plan("0.5.10.post1", words, target=model("FalconH1ForCausalLM"), hardware=B200)
    assert found.value("disable_radix_cache") is True
    assert found.value("disable_overlap_schedule") is False


@rows(
    "architecture, version, radix_off, overlap_off",
    [
        ("Qwen3NextForCausalLM", "0.5.5.post3", False, True),
        ("Qwen3NextForCausalLM", "0.5.7", False, True),
        ("Qwen3NextForCausalLM", "0.5.8.post1", False, False),
        ("Glm4MoeForCausalLM", "0.5.8.post1", False, True),  # the branch slipped below it
        ("Glm4MoeForCausalLM", "0.5.7", False, False),
        ("KimiLinearForCausalLM", "0.5.8.post1", True, False),
        ("LlamaForCausalLM", "0.5.8.post1", False, False),
    ],
)
def test_cached_states_of_early_hybrids(
    architecture: str, version: str, radix_off: bool, overlap_off: bool
) -> None:
    found = plan(version, target=model(architecture), hardware=H100)
    assert found.value("disable_radix_cache") is radix_off
    assert found.value("disable_overlap_schedule") is overlap_off


_MXFP4 = model("GptOssForCausalLM", dtype="float16", quantization_config={"quant_method": "mxfp4"})


@pytest.mark.parametrize(
    ("version", "words", "expected"),
    [("0.5.1.post3", "", "bfloat16"), ("0.5.23", "--dtype float16", "bfloat16")],
)
def test_gpt_oss_in_mxfp4_is_bfloat16(version: str, words: str, expected: str) -> None:
    assert plan(version, words, target=_MXFP4).value("dtype") == expected


def test_the_number_of_a_device_is_no_part_of_it() -> None:
    assert plan("0.5.23", "--device cuda:0").value("device") == "cuda"
    for version in ("0.5.10.post1", "0.5.23"):
        assert plan(version, "--device cuda:0").device == "cuda"
        assert plan(version, "--device cpu:0").device == "cpu"
    same = plan("0.5.23", "--device cuda:0", target=LLAMA)
    assert same.value("attention_backend") == plan("0.5.23").value("attention_backend")


def test_a_device_in_a_variable_is_unknown() -> None:
    from speclaunch.deployments.sources.files import read_shell
    from speclaunch.deployments.sources.requests import from_invocation
    from speclaunch.engine.facts.facts import Facts
    from speclaunch.engine.plan.plan import UnknownValueError
    from speclaunch.engine.plan.resolve import resolve
    from speclaunch.engine.releases.catalogue import load

    text = "python3 -m sglang.launch_server --model-path m --device $DEVICE\n"
    (invocation,) = read_shell(text, "run.sh").invocations
    found = resolve(from_invocation(invocation, "run", load("0.5.23")), Facts(LLAMA, None, H100))
    with pytest.raises(UnknownValueError, match="DEVICE"):
        _ = found.device


@pytest.mark.parametrize("version", ["0.5.18", "0.5.23"])
def test_the_runner_megamoe_is_an_all_to_all_backend(version: str) -> None:
    found = plan(version, "--tp-size 8 --moe-runner-backend megamoe", hardware=B200)
    assert found.value("moe_a2a_backend") == "megamoe"
    assert found.value("moe_runner_backend") == "auto"
