"""Bytes of KV cache for a token: against the literature, the engine's source, and real logs."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from speclaunch.engine.facts.facts import Checkpoint
from speclaunch.engine.facts.read_checkpoint import from_config
from speclaunch.engine.plan.memory.kv import PoolLayout, pool_cell, pool_layout, token_size
from speclaunch.engine.plan.plan import UnknownValueError
from tests.support.engine.plan.memory.sized import MODELS, STEPS, eagle3, llama, plan_of, published
from tests.support.loops import rows

EAGLE3 = "--speculative-algorithm EAGLE3" + STEPS
EAGLE = "--speculative-algorithm EAGLE" + STEPS
STANDALONE = "--speculative-algorithm STANDALONE" + STEPS

GLM_4_5 = {
    # config.json of zai-org/GLM-4.5 (355B-A32B)
    "architectures": ["Glm4MoeForCausalLM"],
    "model_type": "glm4_moe",
    "torch_dtype": "bfloat16",
    "hidden_size": 5120,
    "num_hidden_layers": 92,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_nextn_predict_layers": 1,
}
LLAMA_2_7B = llama(num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=32)


@pytest.mark.parametrize(
    ("checkpoint", "words", "token"),
    [
        # 2 x 2 bytes x 32 layers x 8 heads x 128: "131,072 bytes a token", the usual worked example
        # of grouped-query attention (The Llama 3 Herd of Models, table 3: 8 KV heads, 32 layers)
        (published("meta-llama/Meta-Llama-3.1-8B (base)"), "", 131_072),
        # The Llama 3 Herd of Models, table 3: 80 layers, 8 KV heads of 128: 320 KiB
        (published("meta-llama/Llama-3.1-70B"), "", 327_680),
        # Qwen2.5 Technical Report, table 1: 28 layers, 4 KV heads of 128: 56 KiB
        (published("Qwen/Qwen2.5-7B-Instruct"), "", 57_344),
        # DeepSeek-V3 Technical Report, 4.2 (d_c 512, d_h^R 64, 61 layers); "70.272 KB" a token in
        # Insights into DeepSeek-V3 (arXiv 2505.09343), table 1
        (published("deepseek-ai/DeepSeek-R1"), "", 70_272),
        # the same table: Qwen-2.5 72B 327.680 KB, LLaMA-3.1 405B 516.096 KB
        (
            llama(num_hidden_layers=80, num_attention_heads=64, num_key_value_heads=8),
            "",
            327_680,
        ),
        (
            llama(num_hidden_layers=126, num_attention_heads=128, num_key_value_heads=8),
            "",
            516_096,
        ),
        # Efficient Memory Management with PagedAttention, 3: "the KV cache of a single token
        # demands 800 KB … 2 x 5120 x 40 x 2" (OPT-13B, as many KV heads as heads)
        (
            llama(num_hidden_layers=40, num_attention_heads=40, num_key_value_heads=40),
            "",
            819_200,
        ),
        (from_config("GLM-4.5", GLM_4_5), "", 92 * 8 * 128 * 2 * 2),
        (LLAMA_2_7B, "", 524_288),  # half a MiB: 32 heads
        # halves: 8 KV heads of 64 in 24 and 36 layers, every other with a window of 128 tokens
        (published("openai/gpt-oss-20b"), "--swa-full-tokens-ratio 1", 49_152),
        (published("openai/gpt-oss-120b"), "--swa-full-tokens-ratio 1", 73_728),
        (published("openai/gpt-oss-20b"), "--disable-hybrid-swa-memory", 49_152),
        (published("Qwen/Qwen3.5-27B"), "", 16 * 4 * 256 * 2 * 2),
    ],
    ids=lambda value: value.name if isinstance(value, Checkpoint) else str(value),
)
def test_literature(checkpoint: Checkpoint, words: str, token: int) -> None:
    assert token_size(plan_of(checkpoint, words)).bytes == token


@pytest.mark.parametrize(
    ("name", "words", "version", "tokens", "gib"),
    [
        # public logs: "KV Cache is allocated. #tokens: …, K size: … GB"
        ("Qwen/Qwen3-14B", "--tp-size 4", "0.5.8", 298_447, 5.69),
        ("Qwen/Qwen3-235B-A22B", "--tp-size 4", "0.5.1", 367_404, 8.23),
        (
            "Qwen/Qwen3-30B-A3B",
            "--tp-size 4 --dp-size 4 --enable-dp-attention",
            "0.5.12",
            1_029_388,
            47.12,
        ),
    ],
)
def test_public_logs(name: str, words: str, version: str, tokens: int, gib: float) -> None:
    token = token_size(plan_of(published(name), words, version=version)).bytes
    assert tokens * token / 2 / (1 << 30) == pytest.approx(gib, abs=0.01)


@pytest.mark.parametrize(
    ("draft", "words", "tokens", "target", "drafts"),
    [
        # the real engine 0.5.23 on a CPU: tokens and the bytes of K; a slot of padding is in them
        (None, "", 15_803, 517_865_472, 0),
        (
            llama(name="d", num_hidden_layers=6, num_attention_heads=16, num_key_value_heads=8),
            STANDALONE,
            10_956,
            359_038_976,
            269_279_232,
        ),
    ],
)
def test_real_engine(
    draft: Checkpoint | None, words: str, tokens: int, target: int, drafts: int
) -> None:
    plan = plan_of(llama(), words + " --dtype float32", draft=draft, hardware="cpu")
    assert token_size(plan).bytes * (tokens + 1) == 2 * target
    assert token_size(plan, draft=True).bytes * (tokens + 1) == 2 * drafts


@rows("ranks, token", [(1, 65_536 // 2), (2, 65_536 // 4), (4, 8_192), (8, 8_192)])
def test_heads_are_divided_until_each_rank_has_one(ranks: int, token: int) -> None:
    assert token_size(plan_of(llama(), f"--tp-size {ranks}")).bytes == token


def test_latent_attention_is_whole_on_every_rank() -> None:
    assert token_size(plan_of(published("deepseek-ai/DeepSeek-R1"), "--tp-size 8")).bytes == 70_272


@pytest.mark.parametrize(
    ("words", "version"),
    [
        ("--tp-size 8 --dp-size 2 --enable-dp-attention", "0.5.12"),
        ("--tp-size 8 --attn-dp-size 2", "0.5.23"),
        ("--tp-size 8 --dp-size 2 --enable-dp-attention", "0.5.23"),
    ],
)
def test_ranks_of_dp_attention(words: str, version: str) -> None:
    target = published("meta-llama/Llama-3.1-70B")
    assert token_size(plan_of(target, words, version=version)).bytes == 327_680 // 4


@rows(
    "dtype, token, version",
    [
        ("auto", 32_768, "0.5.23"),
        ("bfloat16", 32_768, "0.5.23"),
        ("fp8_e4m3", 16_384, "0.5.23"),
        ("fp8_e5m2", 16_384, "0.5.9"),
        ("mxfp8", 16_384 + 512, "0.5.23"),
        ("fp4_e2m1", 8_192 + 1_024, "0.5.9"),
    ],
)
def test_dtypes(dtype: str, token: int, version: str) -> None:
    size = token_size(plan_of(llama(), f"--kv-cache-dtype {dtype}", version=version))
    assert size.bytes == token
    assert size.exact is not dtype.startswith("fp4")


def test_dtype_of_the_model_counts() -> None:
    assert token_size(plan_of(llama(torch_dtype="float32"))).bytes == 32_768  # served in float16
    assert token_size(plan_of(llama(), "--dtype float32")).bytes == 65_536


@pytest.mark.parametrize("version", ["0.4.6.post5", "0.5.23"])
@pytest.mark.parametrize(
    ("switch", "token"), [(True, 12 * 576 * 2), (False, 12 * 2 * 10 * 128 * 2)]
)
def test_a_config_may_switch_latent_attention_off(version: str, switch: bool, token: int) -> None:
    """`use_mla` of DeepSeek-VL2 (configs/model_config.py: 0.5.23 :1449, 0.4.6.post5 :185)."""
    text = {
        "use_mla": switch,
        **{"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64},
        **{"v_head_dim": 128 if switch else 0, "hidden_size": 1280, "num_hidden_layers": 12},
        **{"num_attention_heads": 10, "num_key_value_heads": 10, "intermediate_size": 6848},
        **{"vocab_size": 129280, "torch_dtype": "bfloat16"},
    }
    config = {"architectures": ["DeepseekVL2ForCausalLM"], "language_config": text}
    target = from_config("deepseek-ai/deepseek-vl2-tiny", config)
    assert token_size(plan_of(target, version=version)).bytes == token


@pytest.mark.parametrize(
    ("version", "token"), [("0.5.2", 32_768), ("0.5.3", 16_384), ("0.5.23", 16_384)]
)
def test_checkpoint_asks_for_an_fp8_cache(version: str, token: int) -> None:
    config = {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}
    target = llama(quantization_config=config)
    assert token_size(plan_of(target, version=version)).bytes == token


@rows(
    "version, hardware, words, token, cell",
    [
        # bf16 on Hopper, and 132 bytes of the indexer
        ("0.5.23", "h200:8", "", 61 * (1152 + 132), 61 * (1152 + 132)),
        # fp8 with scales: 512 + 4 x 4 + 64 x 2; the budget did not know of them before 0.5.17
        ("0.5.16", "h200:8", "--kv-cache-dtype fp8_e4m3", 61 * (656 + 132), 61 * (576 + 132)),
        ("0.5.17", "h200:8", "--kv-cache-dtype fp8_e4m3", 61 * (656 + 132), 61 * (656 + 132)),
        # fp8 by default on Blackwell, where trtllm reads rows without scales
        ("0.5.23", "b200:8", "", 61 * (576 + 132), 61 * (576 + 132)),
    ],
)
def test_sparse_attention(version: str, hardware: str, words: str, token: int, cell: int) -> None:
    """DeepSeek-V3.2."""
    config = MODELS["deepseek-ai/DeepSeek-R1"]["config"] | {
        "architectures": ["DeepseekV32ForCausalLM"],
        "index_head_dim": 128,
        "index_n_heads": 64,
        "index_topk": 2048,
    }
    plan = plan_of(from_config("v32", config), words, version=version, hardware=hardware)
    assert token_size(plan).bytes == token
    assert pool_cell(plan).bytes == cell


def test_layers_that_share_an_index() -> None:
    """GLM-5.2: 21 of 78 layers have an indexer; 0.5.18 learnt to keep no keys for the rest."""
    target = published("zai-org/GLM-5.2-FP8")
    for version, layers in (("0.5.17", 78), ("0.5.18", 21), ("0.5.23", 21)):
        token = token_size(plan_of(target, version=version)).bytes
        assert token == 78 * 1152 + layers * 132


def test_sliding_windows_have_a_pool() -> None:
    target = published("openai/gpt-oss-120b")
    assert pool_layout(plan_of(target, "--tp-size 8")) == PoolLayout(
        18, 18 * 256, 18, 18 * 256, 0.8
    )
    for version, cell in (("0.5.10", 9_216), ("0.5.11", 8_294)):
        assert pool_cell(plan_of(target, "--tp-size 8", version=version)).bytes == cell


@rows("version, windows", [("0.5.6", 18), ("0.5.7", 0), ("0.5.8", 18), ("0.5.23", 18)])
def test_versions_that_have_that_pool(version: str, windows: int) -> None:
    layout = pool_layout(plan_of(published("openai/gpt-oss-120b"), version=version))
    assert layout.swa_layers == windows
    assert layout.full_layers == 36 - windows


def test_recurrent_states() -> None:
    """Qwen3.5-27B: 48 layers, each (48 x 128 + 2 x 16 x 128) x 3 in bf16, 48 x 128 x 128 in
    fp32."""
    target = published("Qwen/Qwen3.5-27B")
    state = (48 * 128 + 2 * 16 * 128) * 3 * 2 + 48 * 128 * 128 * 4
    layout = pool_layout(plan_of(target))
    assert (layout.state_layers, layout.state_request_bytes) == (48, 48 * state)
    divided = pool_layout(plan_of(target, "--tp-size 4")).state_request_bytes
    assert divided == 48 * state // 4
    halved = plan_of(target, "--mamba-ssm-dtype bfloat16")
    assert pool_layout(halved).state_request_bytes == 48 * (state - 48 * 128 * 128 * 2)
    with pytest.raises(UnknownValueError, match="cannot be divided"):
        pool_layout(plan_of(target, "--tp-size 7"))


NEMOTRON = {
    "architectures": ["NemotronHForCausalLM"],
    "model_type": "nemotron_h",
    "torch_dtype": "bfloat16",
    "hidden_size": 4480,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hybrid_override_pattern": "M-M*-M-",
    "mamba_num_heads": 128,
    "mamba_head_dim": 80,
    "n_groups": 8,
    "ssm_state_size": 128,
    "conv_kernel": 4,
}


@pytest.mark.parametrize(("ranks", "groups"), [(1, 8), (8, 8), (16, 16)])
def test_mamba_states_have_a_group_for_each_rank(ranks: int, groups: int) -> None:
    plan = plan_of(from_config("n", NEMOTRON), f"--tp-size {ranks}", hardware="h100-80gb:16")
    channels = (128 * 80 + 2 * groups * 128) // ranks
    each = channels * 3 * 2 + 128 // ranks * 80 * 128 * 4
    layout = pool_layout(plan)
    assert (layout.full_layers, layout.state_layers) == (1, 3)
    assert layout.state_request_bytes == 3 * each


def test_pipeline_stages() -> None:
    target = llama(num_hidden_layers=17)
    assert token_size(plan_of(target, "--pp-size 4")).bytes == 5 * 2048


@rows(
    "version, cell",
    [
        ("0.5.10", 32_768),  # the draft is paid from what is left
        ("0.5.13", 32_768),
        ("0.5.14", 34_816),  # as a layer more
        ("0.5.21", 34_816),
        ("0.5.23", 34_816),
    ],
)
def test_budget_counts_the_draft(version: str, cell: int) -> None:
    plan = plan_of(llama(), EAGLE3, draft=eagle3(), version=version)
    assert pool_cell(plan).bytes == cell
    assert token_size(plan).bytes == 32_768
    assert token_size(plan, draft=True).bytes == 2_048


def test_budget_takes_the_draft_for_a_part_of_the_target() -> None:
    """STANDALONE: 6 layers with twice the heads are counted like 6 of the target's."""
    draft = llama(name="d", num_hidden_layers=6, num_attention_heads=16, num_key_value_heads=8)
    plan = plan_of(llama(), STANDALONE, draft=draft)
    assert pool_cell(plan).bytes == 32_768 + 32_768 * 6 // 16
    assert token_size(plan, draft=True).bytes == 2 * 32_768 * 6 // 16


def test_mtp_layer_is_of_the_targets_kind() -> None:
    target = published("deepseek-ai/DeepSeek-R1")
    plan = plan_of(target, EAGLE)
    assert token_size(plan, draft=True).bytes == 1_152
    assert pool_cell(plan).bytes == 71_424
    assert pool_cell(plan_of(target, EAGLE, version="0.5.13")).bytes == 70_272


def test_sparse_drafts_are_counted_with_all_their_keys() -> None:
    target = published("zai-org/GLM-5.2-FP8")
    own = 78 * 1152 + 21 * 132
    assert pool_cell(plan_of(target, EAGLE)).bytes == own + 1152 + 132
    assert pool_cell(plan_of(target, EAGLE, version="0.5.17")).bytes == int(
        78 * (1152 + 132) * (1 + 1 / 78)
    )


@pytest.mark.parametrize(
    ("version", "more"), [("0.5.14", 0), ("0.5.15", 2_048 + 0), ("0.5.23", 2_048)]
)
def test_drafts_of_models_with_windows(version: str, more: int) -> None:
    """From 0.5.15 as layers that keep every token."""
    target = published("openai/gpt-oss-20b")
    plain = plan_of(target, version=version)
    plan = plan_of(target, EAGLE3, draft=eagle3(), version=version)
    assert pool_cell(plan).bytes - pool_cell(plain).bytes == more


@pytest.mark.parametrize(
    ("version", "cell"),
    [
        ("0.5.11", 32_768 * 21 // 16),  # five layers like the target's
        ("0.5.17", 32_768 * 21 // 16),
        ("0.5.18", 32_768 + 5 * 8 * 256 * 2),  # its own: eight heads
    ],
)
def test_dflash(version: str, cell: int) -> None:
    draft = llama(
        name="dflash",
        architectures=["DFlashDraftModel"],
        model_type="qwen3",
        num_hidden_layers=5,
        num_attention_heads=16,
        num_key_value_heads=8,
        dflash_config={"target_layer_ids": [1, 4, 8], "block_size": 16},
    )
    plan = plan_of(llama(), "--speculative-algorithm DFLASH", draft=draft, version=version)
    assert pool_cell(plan).bytes == cell
    assert token_size(plan, draft=True).bytes == 5 * 8 * 256 * 2


def test_no_draft() -> None:
    for words in ("", "--speculative-algorithm NGRAM"):
        plan = plan_of(llama(), words)
        assert token_size(plan, draft=True).bytes == 0
        assert pool_cell(plan).bytes == token_size(plan).bytes


def test_draft_has_a_dtype_of_its_own() -> None:
    words = EAGLE3 + " --kv-cache-dtype fp8_e4m3 --speculative-draft-kv-cache-dtype bfloat16"
    plan = plan_of(llama(), words, draft=eagle3())
    assert token_size(plan).bytes == 16_384
    assert token_size(plan, draft=True).bytes == 2_048


def test_keys_and_values_of_different_sizes() -> None:
    """MiMo-V2: 0.5.7 learnt to count values on their own."""
    target = llama(head_dim=192, v_head_dim=128)
    for version, token in (("0.5.6", 16 * 4 * 384 * 2), ("0.5.7", 16 * 4 * 320 * 2)):
        assert token_size(plan_of(target, version=version)).bytes == token


def test_what_is_missing_is_named() -> None:
    with pytest.raises(UnknownValueError, match="target checkpoint"):
        token_size(plan_of(None))
    with pytest.raises(UnknownValueError, match="draft checkpoint"):
        pool_cell(plan_of(llama(), EAGLE3 + " --speculative-draft-model-path d"))
    with pytest.raises(UnknownValueError, match="num_hidden_layers"):
        token_size(plan_of(llama(num_hidden_layers=None)))
    with pytest.raises(UnknownValueError, match="DeepseekV4"):
        token_size(plan_of(llama(architectures=["DeepseekV4ForCausalLM"])))
    with pytest.raises(UnknownValueError, match="hardware is unknown"):
        token_size(plan_of(published("zai-org/GLM-5.2-FP8"), hardware=None))


KEYS = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("head_dim", "v_head_dim", "kv_lora_rank", "qk_rope_head_dim", "index_topk"),
    *("index_head_dim", "index_topk_freq", "index_skip_topk_offset", "indexer_types"),
    *("layer_types", "sliding_window", "full_attention_interval", "linear_num_value_heads"),
    *("linear_key_head_dim", "num_nextn_predict_layers", "linear_attn_config", "loop_num"),
    *("hybrid_override_pattern", "torch_dtype", "quantization_config", "architectures"),
)
HOSTILE: tuple[Any, ...] = (
    *(0, -1, 1, 2**31, 2**80, 1.5, float("nan"), True, "12", "", [], [[]], {}, None, [None]),
    *(["x"], ["full_attention"], [-(2**70)], {"kda_layers": [2**80]}, "M*-", ["NoSuchModel"]),
    {"kv_cache_scheme": {"type": "float", "num_bits": "8"}, "quant_method": "modelopt_fp8"},
)


@pytest.mark.thorough
@rows("seed", range(40))
def test_no_config_makes_it_crash(seed: int) -> None:
    """Values of every kind at every key: a size, or UnknownValueError."""
    chance = random.Random(seed)
    name = chance.choice(sorted(MODELS))
    config = copy.deepcopy(dict(MODELS[name]["config"]))
    for _ in range(chance.randint(1, 4)):
        key = chance.choice(KEYS)
        inner = config.get("text_config")
        where = inner if isinstance(inner, dict) and chance.random() < 0.7 else config
        where[key] = chance.choice(HOSTILE)
    words = chance.choice(["", "--tp-size 8", "--pp-size 3", "--kv-cache-dtype fp8_e4m3"])
    words += " " + chance.choice(["", EAGLE])
    version = chance.choice(["0.4.6", "0.5.3", "0.5.8", "0.5.12", "0.5.16", "0.5.23"])
    plan = plan_of(from_config(name, config), words, version=version)
    for ask in (token_size, pool_layout, pool_cell, lambda plan: token_size(plan, draft=True)):
        try:
            assert ask(plan) is not None
        except UnknownValueError as error:
            assert str(error)
