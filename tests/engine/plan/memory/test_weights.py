"""Bytes of weights: against the index of published checkpoints, and against the real engine."""

from __future__ import annotations

import copy
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from speclaunch.engine.facts.facts import Checkpoint
from speclaunch.engine.facts.read_checkpoint import from_config, read_checkpoint
from speclaunch.engine.plan.memory.matrices import ModelConfig
from speclaunch.engine.plan.memory.models import language_model
from speclaunch.engine.plan.memory.quantized import FP8_ROWS, MXFP4, NVFP4, ExcludedModules, Scheme
from speclaunch.engine.plan.memory.weights import counted, weight_size
from speclaunch.engine.plan.plan import UnknownValueError
from tests.support.engine.plan.memory.sized import MODELS, STEPS, eagle3, llama, plan_of, published
from tests.support.loops import rows

GIB = 1 << 30


@cache
def published_bytes(name: str) -> int:
    return counted(published(name)).bytes()


@pytest.mark.thorough
@pytest.mark.parametrize("name", MODELS)
def test_config_tells_what_the_index_says(name: str) -> None:
    """From the config alone, within two per cent; nearly all of them to the byte."""
    assert published_bytes(name) == pytest.approx(MODELS[name]["total_bytes"], rel=0.02)


@pytest.mark.thorough
def test_most_are_exact_to_the_byte() -> None:
    off = {name for name, entry in MODELS.items() if published_bytes(name) != entry["total_bytes"]}
    assert off == {
        "deepseek-ai/DeepSeek-V3",  # the sum of its files, headers included
        "Qwen/Qwen3.5-122B-A10B",  # 13.8 KB of 250 GB
        "meta-llama/Llama-4-Scout-17B-16E-Instruct",  # this config has no vision tower
        "zai-org/GLM-4.5",  # counted as 2 bytes each, some of a router's biases are float32
        "zai-org/GLM-4.5-Air",
        "meta-llama/Llama-2-13b-hf",  # holds the frequencies of its positions: 5 KB
    }


def test_a_head_that_is_tied_and_stored_all_the_same() -> None:
    """Qwen3-1.7B: 4,063,479,808 bytes by its index, and the engine loads one of the two."""
    checkpoint = from_config(
        "Qwen/Qwen3-1.7B",
        MODELS["Qwen/Qwen3-4B"]["config"]
        | {
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
        },
    )
    assert counted(checkpoint).bytes() == 3_441_149_952
    held = replace(checkpoint, weight_bytes=4_063_479_808)
    assert weight_size(plan_of(held)).bytes == 3_441_149_952


@pytest.mark.parametrize(
    ("name", "words", "version", "gib"),
    [
        # public logs, "Load weight end. … mem usage": what torch holds beside the weights is in it
        ("Qwen/Qwen3-14B", "--tp-size 4", "0.5.8", 7.08),
        (
            "Qwen/Qwen3-30B-A3B",
            "--tp-size 4 --dp-size 4 --enable-dp-attention --moe-a2a-backend deepep",
            "0.5.12",
            16.39,
        ),
    ],
)
def test_ranks_of_public_logs(name: str, words: str, version: str, gib: float) -> None:
    size = weight_size(plan_of(published(name), words, version=version))
    assert gib * 0.96 < size.bytes / GIB <= gib


@rows("ranks", [1, 2, 4, 8])
def test_tensor_parallel_divides(ranks: int) -> None:
    """All but norms, which every rank has; a KV head for each rank where there are fewer."""
    checkpoint = llama()
    norms = (16 * 2 + 1) * 1024 * 2
    whole = counted(checkpoint).bytes()
    kv_heads = 16 * 2 * 4 * 128 * 1024 * 2
    divided = (whole - norms - kv_heads) / ranks + kv_heads / min(4, ranks) + norms
    assert weight_size(plan_of(checkpoint, f"--tp-size {ranks}")).bytes == round(divided)


def test_pipeline_stages_hold_their_layers() -> None:
    """17 layers on 4 stages are 4, 4, 4 and 5: the last one has the head, too."""
    checkpoint = llama(num_hidden_layers=17)
    layer = (counted(checkpoint).bytes() - (2 * 32000 + 1) * 1024 * 2) // 17
    size = weight_size(plan_of(checkpoint, "--pp-size 4"))
    assert size.bytes == 5 * layer + 32000 * 1024 * 2


def test_partition_of_the_stages_is_asked_for() -> None:
    plan = plan_of(llama(), "--pp-size 2", env={"SGLANG_PP_LAYER_PARTITION": "10,6"})
    even = plan_of(llama(), "--pp-size 2")
    assert weight_size(plan).bytes > weight_size(even).bytes
    wrong = plan_of(llama(), "--pp-size 2", env={"SGLANG_PP_LAYER_PARTITION": "10,7"})
    with pytest.raises(UnknownValueError, match="SGLANG_PP_LAYER_PARTITION"):
        weight_size(wrong)


def test_experts_are_spread_and_copied() -> None:
    target = published("Qwen/Qwen3-30B-A3B")
    plain = weight_size(plan_of(target, "--tp-size 8")).bytes
    spread = weight_size(plan_of(target, "--tp-size 8 --ep-size 8")).bytes
    assert spread == plain  # whole experts on some ranks, or a part of each on all of them
    copied = plan_of(target, "--tp-size 8 --ep-size 8 --ep-num-redundant-experts 32")
    experts = 48 * 128 * 3 * 768 * 2048 * 2
    assert weight_size(copied).bytes - plain == pytest.approx(experts * 32 / 128 / 8, abs=1)


@rows(
    "hardware, version, ranks, padded",
    [
        ("h100-80gb:8", "0.5.23", 1, 1.0),
        ("h100-80gb:8", "0.5.23", 8, 384 / 360),  # 2880 / 8 to a multiple of 64
        ("b200:8", "0.5.17", 1, (3072 / 2880) ** 2),
        ("b200:8", "0.5.18", 8, 384 / 360 * 2944 / 2880),
    ],
)
def test_experts_in_mxfp4_are_padded(
    hardware: str, version: str, ranks: int, padded: float
) -> None:
    target = published("openai/gpt-oss-120b")
    plan = plan_of(target, f"--tp-size {ranks}", version=version, hardware=hardware)
    experts = 36 * 128 * 3 * 2880 * 2880 * (1 / 2 + 1 / 32)
    rest = 65_248_815_744 - experts
    found = weight_size(plan)
    assert found.bytes - experts * padded / ranks == pytest.approx(
        rest / ranks, rel=0.01 if ranks == 1 else 0.4
    )
    assert not found.exact


def test_nvfp4_of_a_published_checkpoint() -> None:
    """nvidia/Qwen3.5-122B-A10B-NVFP4, by the hub's count of its tensors: 9,122,380,016 BF16,
    7,247,757,312 F8_E4M3 (scales), 57,982,058,496 U8 (two weights each); 83,474,870,752 bytes.
    Only experts are quantised; the list of what is not is written after these counts."""
    kept = ["lm_head", "re:.*attn.*", "re:.*shared_expert.*", "mtp*", "visual*", "re:.*mlp.gate$"]
    entry = MODELS["Qwen/Qwen3.5-122B-A10B"]
    method = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": kept}
    found = from_config("nvfp4", entry["config"] | {"quantization_config": method})
    assert counted(found).bytes() == pytest.approx(83_474_870_752, rel=1e-6)


def test_dp_attention_repeats_attention() -> None:
    target = published("Qwen/Qwen3-30B-A3B")
    plain = weight_size(plan_of(target, "--tp-size 4")).bytes
    words = "--tp-size 4 --dp-size 4 --enable-dp-attention"
    parallel = weight_size(plan_of(target, words, version="0.5.12")).bytes
    attention = 48 * 2048 * (2 * 32 + 2 * 4) * 128 * 2
    embedding = 151936 * 2048 * 2
    assert parallel - plain == pytest.approx((attention + embedding) * 3 / 4, rel=0.001)


def test_dense_layers_of_a_mixture_stay_whole_when_asked() -> None:
    target = published("deepseek-ai/DeepSeek-R1")
    words = "--tp-size 8 --dp-size 8 --enable-dp-attention"
    divided = weight_size(plan_of(target, words, version="0.5.12")).bytes
    whole = weight_size(plan_of(target, words + " --moe-dense-tp-size 1", version="0.5.12")).bytes
    assert whole - divided == pytest.approx(3 * 3 * 7168 * 18432 * 7 / 8, rel=0.001)


def test_mtp_layers_are_the_drafts() -> None:
    """DeepSeek-V3: 671 B parameters and a layer more, and copies of embedding and head that
    nobody loads ("the total size is 685B", model card)."""
    target = published("deepseek-ai/DeepSeek-R1")
    plan = plan_of(target, "--tp-size 8 --speculative-algorithm EAGLE" + STEPS)
    model, draft = weight_size(plan), weight_size(plan, draft=True)
    assert model.bytes == weight_size(plan_of(target, "--tp-size 8")).bytes
    experts, joined = 257 * 3 * 7168 * 2048, 2 * 7168 * 7168 * 2  # each rank joins the whole
    assert draft.bytes == pytest.approx(experts / 8 + joined, rel=0.03)
    assert "embedding and head are the target's" in draft.why
    without = plan_of(replace(target, mtp_weights=False), "--speculative-algorithm EAGLE" + STEPS)
    with pytest.raises(UnknownValueError, match="no multi-token-prediction"):
        weight_size(without, draft=True)


def test_absorbed_latent_attention_is_held_twice() -> None:
    """`kv_b_proj` and its halves: 61 layers of 128 heads of (128 + 128) times 512."""
    target = published("deepseek-ai/DeepSeek-R1")
    more = 61 * 128 * 256 * 512
    split = weight_size(plan_of(target)).bytes - counted(target).bytes()
    mtp = weight_size(plan_of(target, "--speculative-algorithm EAGLE" + STEPS), draft=True).bytes
    copies = 2 * 129280 * 7168 * 2
    assert split == pytest.approx(more - mtp - copies, rel=0.01)


def test_eagle3_shares_the_embedding() -> None:
    draft = eagle3()
    plan = plan_of(llama(), "--speculative-algorithm EAGLE3" + STEPS, draft=draft)
    fc, norms = 3 * 1024 * 1024, 5 * 1024
    attention = 2 * 1024 * (8 + 4 + 4) * 128 + 8 * 128 * 1024
    mlp = 3 * 1024 * 4096
    layer = fc + attention + mlp + norms
    found = weight_size(plan, draft=True)
    assert found.bytes == pytest.approx((layer + 8000 * 1024) * 2, rel=0.001)
    assert "the embedding is the target's" in found.why
    headless = plan_of(
        llama(), "--speculative-algorithm EAGLE3" + STEPS, draft=eagle3(draft_vocab_size=None)
    )
    assert weight_size(headless, draft=True).bytes == pytest.approx(layer * 2, rel=0.001)


@pytest.mark.parametrize("holds_embedding", [False, True])
def test_files_of_a_draft_with_and_without_an_embedding(holds_embedding: bool) -> None:
    embedding = 32000 * 1024 * 2
    lean = weight_size(
        plan_of(llama(), "--speculative-algorithm EAGLE3" + STEPS, draft=eagle3()), draft=True
    ).bytes
    held = replace(eagle3(), weight_bytes=lean + embedding * holds_embedding)
    plan = plan_of(llama(), "--speculative-algorithm EAGLE3" + STEPS, draft=held)
    assert weight_size(plan, draft=True).bytes == pytest.approx(lean, rel=0.001)


def test_standalone_and_ngram() -> None:
    draft = llama(name="small", num_hidden_layers=2)
    plan = plan_of(llama(), "--speculative-algorithm STANDALONE" + STEPS, draft=draft)
    assert weight_size(plan, draft=True).bytes == counted(draft).bytes()
    for words in ("", "--speculative-algorithm NGRAM"):
        assert weight_size(plan_of(llama(), words), draft=True).bytes == 0


def test_online_quantisation_and_another_dtype() -> None:
    target = llama()
    linear = 16 * (1024 * 128 * (8 + 4 + 4 + 8) + 3 * 1024 * 4096)
    whole = weight_size(plan_of(target)).bytes
    fp8 = weight_size(plan_of(target, "--quantization fp8"))
    assert fp8.bytes == pytest.approx(whole - linear, rel=0.003)
    assert not fp8.exact
    assert weight_size(plan_of(target, "--dtype float32")).bytes == 2 * whole
    with pytest.raises(UnknownValueError, match="quantization"):
        weight_size(plan_of(target, "--quantization bitsandbytes"))


def test_schemes_by_hand() -> None:
    """Of a matrix of 256 rows and 512 columns."""
    elements = 256 * 512
    assert Scheme(8, block=(128, 128)).bytes(256, 512) == elements + 2 * 4 * 4
    assert Scheme(8, block=(128, 128)).bytes(257, 512) == 257 * 512 + 3 * 4 * 4
    assert Scheme(4, group=128, scale=2, zeros=True).bytes(256, 512) == (
        elements / 2 + 256 * 4 * 2.5
    )
    assert NVFP4.bytes(256, 512) == elements / 2 + elements / 16 + 8
    assert MXFP4.bytes(256, 512) == elements / 2 + elements / 32
    assert FP8_ROWS.bytes(256, 512) == elements + 256 * 4


@rows(
    "names, module, excluded",
    [
        (["lm_head"], "lm_head", True),
        (["model.layers.0"], "model.layers.0.mlp.gate_proj", True),
        (["model.layers.1"], "model.layers.10.mlp.gate_proj", False),
        (["re:.*self_attn.*"], "model.layers.3.self_attn.q_proj", True),
        (["model.layers.*.self_attn"], "model.layers.3.self_attn.q_proj", True),
        (["model.layers.*.self_attn"], "model.layers.3.mlp.up_proj", False),
        (["model.language_model.layers.2.mlp"], "model.layers.2.mlp.up_proj", True),
        (["language_model.model.layers.2*"], "model.layers.2.mlp.up_proj", True),
        (["gate"], "model.layers.2.mlp.gate", True),
        (["gate"], "model.layers.2.mlp.gate_proj", False),
        (["re:(unclosed"], "lm_head", False),
    ],
)
def test_modules_left_alone(names: list[str], module: str, excluded: bool) -> None:
    assert (module in ExcludedModules.of(names)) is excluded


@pytest.mark.parametrize("pattern", ["re:(.+)+x", "re:" + ".*" * 9, "re:(a|b){9}"])
def test_patterns_that_would_take_for_ever(pattern: str) -> None:
    with pytest.raises(UnknownValueError, match="pattern"):
        ExcludedModules.of([pattern])


def test_what_is_missing_is_named() -> None:
    with pytest.raises(UnknownValueError, match="target checkpoint"):
        weight_size(plan_of(None))
    unknown = plan_of(llama(), "--speculative-algorithm EAGLE3 --speculative-draft-model-path d")
    with pytest.raises(UnknownValueError, match="draft checkpoint"):
        weight_size(unknown, draft=True)
    with pytest.raises(UnknownValueError, match="intermediate_size"):
        counted(llama(intermediate_size=None))
    with pytest.raises(UnknownValueError, match="is not a count"):
        counted(llama(intermediate_size="many"))
    with pytest.raises(UnknownValueError, match="MysteryForCausalLM"):
        counted(llama(architectures=["MysteryForCausalLM"]))


def test_files_alone_are_divided_evenly() -> None:
    mystery = replace(llama(architectures=["MysteryForCausalLM"]), weight_bytes=8 * GIB)
    size = weight_size(plan_of(mystery, "--tp-size 4"))
    assert size.bytes == 2 * GIB
    assert not size.exact
    assert "divided by 4" in size.why


def test_files_that_the_config_does_not_describe() -> None:
    """MLX's 4-bit copies keep the config of the whole model."""
    held = replace(llama(), weight_bytes=counted(llama()).bytes() // 4)
    size = weight_size(plan_of(held))
    assert size.bytes == held.weight_bytes
    assert not size.exact


CPU = json.loads(Path(__file__).with_name("cpu_weights.json").read_text())
"""Measured on the real engine (0.5.23, CPU): the parameters that it holds after loading."""


@pytest.mark.parametrize("name", CPU)
def test_parameters_of_the_real_engine(name: str, tmp_path: Path) -> None:
    """The draft of EAGLE still has its own embedding (and head) when it is measured."""
    case = CPU[name]
    words = case["words"] + " --dtype float32"
    draft = from_config("draft", case["draft"]) if case["draft"] else None
    plan = plan_of(from_config("target", case["target"]), words, draft=draft, hardware="cpu")
    assert weight_size(plan).bytes == case["target_bytes"]
    if case["draft_bytes"] is not None:
        found = weight_size(plan, draft=True).bytes
        assert found == case["draft_bytes"] - case["shared_bytes"]


KEYS = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "head_dim", "vocab_size", "n_routed_experts", "num_experts"),
    *("moe_intermediate_size", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim"),
    *("qk_rope_head_dim", "v_head_dim", "layer_types", "vision_config", "quantization_config"),
    *("first_k_dense_replace", "moe_layer_freq", "num_nextn_predict_layers", "index_topk"),
    *("tie_word_embeddings", "attention_bias", "linear_num_value_heads", "linear_attn_config"),
)
HOSTILE: tuple[Any, ...] = (
    *(0, -1, 1, 2**31, 2**80, -(2**70), 1.5, float("inf"), True, "12", "", [], [[]], {}, None),
    *([None], ["x"], {"quant_method": "fp8", "weight_block_size": [0, 0]}, [0, 1], {"depth": -1}),
    *({"quant_method": "awq", "bits": 0, "group_size": 0}, {"quant_method": 3}, {"kda_layers": 1}),
    {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 4}}}},
    {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"a": 1}},
    {"quant_method": "fp8", "ignore": ["re:((", "*" * 50]},
    {"quant_method": "fp8", "ignore": ["re:" + "(a*)*" * 3, "re:" + ".*" * 30]},
    {
        "quant_method": "compressed-tensors",
        "config_groups": {
            "a": {"weights": {"num_bits": 8, "strategy": "block", "block_structure": [0, -1]}}
        },
    },
)


@pytest.mark.thorough
@rows("seed", range(40))
def test_no_config_makes_it_crash(seed: int) -> None:
    """Values of every kind at every key: a size that is no less than 0, or UnknownValueError."""
    chance = random.Random(seed)
    name = chance.choice(sorted(MODELS))
    config = copy.deepcopy(dict(MODELS[name]["config"]))
    for _ in range(chance.randint(1, 4)):
        key = chance.choice(KEYS)
        inner = config.get("text_config")
        where = inner if isinstance(inner, dict) and chance.random() < 0.7 else config
        where[key] = chance.choice(HOSTILE)
    checkpoint: Checkpoint = replace(
        from_config(name, config), weight_bytes=chance.choice([None, 1, 10**12])
    )
    words = chance.choice(["", "--tp-size 8", "--pp-size 3", "--quantization fp8"])
    words += chance.choice(["", " --speculative-algorithm EAGLE" + STEPS])
    plan = plan_of(checkpoint, words)
    for draft in (False, True):
        try:
            assert weight_size(plan, draft=draft).bytes >= 0
        except UnknownValueError as error:
            assert str(error)


def test_zero_layers_are_no_model() -> None:
    with pytest.raises(UnknownValueError):
        counted(llama(num_hidden_layers=0))
    with pytest.raises(UnknownValueError, match="num_hidden_layers"):
        counted(llama(num_hidden_layers=10**9))


def test_modelopt_file_beside_the_config(tmp_path: Path) -> None:
    """ModelOpt writes the method into a file of its own; its list counts."""
    (tmp_path / "config.json").write_text(json.dumps(dict(llama().raw)))
    beside = {"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside))
    found = read_checkpoint("nvfp4", tmp_path)
    assert isinstance(found, Checkpoint)
    linear = 16 * (1024 * 128 * (8 + 4 + 4 + 8) + 3 * 1024 * 4096)
    whole = counted(llama()).bytes()
    assert counted(found).bytes() == pytest.approx(
        whole - linear * 2 + linear * (1 / 2 + 1 / 16), rel=0.0001
    )


def test_every_matrix_of_a_layer_has_its_stage() -> None:
    matrices = list(language_model(ModelConfig.of(llama())))
    assert {m.layer for m in matrices} == {None, *range(16)}


_MODULE = st.lists(st.sampled_from(["a", "b", "ab", ""]), min_size=1, max_size=4).map(".".join)


@pytest.mark.thorough
@given(st.lists(_MODULE, max_size=4), _MODULE)
def test_few_names_are_looked_for_as_many_are(names: list[str], module: str) -> None:
    many = frozenset(names) | {f"other{number}" for number in range(20)}
    assert (module in ExcludedModules(frozenset(names))) == (module in ExcludedModules(many))
