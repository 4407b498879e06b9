"""What else an engine checks: numbers, companions, and features that exclude each other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tools.verdicts.building import (
    BASES,
    CHAIN,
    TREE,
    Args,
    Configuration,
    model,
    parameters,
    speculate,
)

WITHOUT: list[Args] = [
    {"tokenizer_worker_num": 0},
    {"base_gpu_id": -1},
    {"gpu_id_step": 0},
    {"schedule_conservativeness": -0.5},
    {"pp_max_micro_batch_size": 0},
    {"moe_dense_tp_size": 3},
    {"moe_dense_tp_size": 1},
    {"nnodes": 2, "node_rank": 0, "dp_size": 2},
    {"nnodes": 3, "node_rank": 0, "tp_size": 4},
    {"nnodes": 2, "node_rank": 2, "tp_size": 4},
    {"served_model_name": "a:b"},
    {"enable_priority_scheduling": True},
    {"enable_priority_scheduling": True, "schedule_policy": "lpm"},
    {"enable_priority_scheduling": True, "schedule_policy": "random"},
    {"schedule_low_priority_values_first": True},
    {"enable_hierarchical_cache": True, "disable_radix_cache": True},
    {"disaggregation_decode_enable_offload_kvcache": True},
    {"enable_eplb": True},
    {"enable_pdmux": True, "chunked_prefill_size": -1, "disable_overlap_schedule": True},
    {"lora_paths": ["a=models/adapter", "a=models/other"]},
    {"enable_lora": True},
    {"max_loras_per_batch": 0, "lora_paths": ["a=models/adapter"]},
    {"moe_a2a_backend": "deepep"},
    {"moe_a2a_backend": "deepep", "tp_size": 8},
    {"max_running_requests": 1, "dp_size": 4, "tp_size": 4, "enable_dp_attention": True},
    {"load_balance_method": "round_robin", "dp_size": 2},
    {"disaggregation_mode": "prefill", "dp_size": 2},
    {"dp_size": 3, "tp_size": 8, "enable_dp_attention": True},
    {"cpu_offload_gb": 4},
    {"stream_interval": 0},
    {"device": "cpu"},
    {"device": "tpu"},
    {"device": "cuda:0"},
    {"chunked_prefill_size": 8192, "page_size": 3},
    {"dcp_size": 2, "tp_size": 4},
    {"attn_cp_size": 2, "tp_size": 4},
    {"kv_cache_dtype": "fp8_e4m3", "attention_backend": "fa3"},
    {"enable_prefill_delayer": True},
]

WITH: list[Args] = [
    {"dcp_size": 2, "tp_size": 4},
    {"attn_cp_size": 2, "tp_size": 4},
    {"speculative_skip_dp_mlp_sync": True},
    {"enable_linear_replayssm_spec": True},
    {"enable_hisparse": True},
    {"enable_hierarchical_cache": True, "disable_radix_cache": True},
    {"enable_priority_scheduling": True},
    {"cpu_offload_gb": 4},
    {"tp_size": 4, "dp_size": 4, "enable_dp_attention": True, "max_running_requests": 2},
    {"tp_size": 4, "attn_dp_size": 4, "enable_dp_lm_head": True, "moe_a2a_backend": "deepep"},
    {"tp_size": 4, "attn_dp_size": 4, "enable_dp_lm_head": True, "speculative_adaptive": True},
    {"attention_backend": "flashinfer", "page_size": 64, "enable_deterministic_inference": True},
    {"device": "cpu"},
]


def features() -> Iterator[Configuration]:
    """Checks that have little to do with speculation, and those that are made for it."""
    for args in WITHOUT:
        yield Configuration("feature", {**model("llama"), **args})
        yield Configuration("feature", {**model("qwen3-moe"), "tp_size": 2, **args})
    for args, base in itertools.product(WITH, ("eagle3", "mtp", "standalone", "ngram", "dflash")):
        yield Configuration("feature", {**BASES[base], **args})
    variables = [
        {"SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION": "1"},
        {"SGLANG_RAGGED_VERIFY_MODE": "static"},
        {"SGLANG_RAGGED_VERIFY_MODE": "compact"},
        {"SGLANG_RAGGED_VERIFY_MODE": "sometimes"},
        {"SGLANG_ENABLE_PP_SPEC": "1"},
    ]
    for env, base in itertools.product(variables, BASES):
        yield Configuration("feature", BASES[base], env)
    pipeline = {"pp_size": 2, "disaggregation_mode": "prefill", "disable_overlap_schedule": True}
    for base in BASES:
        yield Configuration("feature", {**BASES[base], **pipeline})
        yield Configuration("feature", {**BASES[base], **pipeline}, {"SGLANG_ENABLE_PP_SPEC": "1"})
    for draft in ("domino", "domino-incomplete", "lilicorr", "lilicorr-incomplete"):
        for args in ({}, {"tp_size": 2, "attn_dp_size": 2, "enable_dp_lm_head": True}):
            yield Configuration("feature", speculate("DFLASH", "qwen3", f"qwen3-{draft}", **args))
    for interval, shape in itertools.product((4, 256), (CHAIN, TREE, parameters(15, 8, 64))):
        args = {"mamba_track_interval": interval, "mamba_radix_cache_strategy": "extra_buffer"}
        target = speculate("NEXTN", "qwen3-next", tp_size=4)
        env = {"SGLANG_ENABLE_SPEC_V2": "1"}
        yield Configuration("feature", {**target, **args, **shape}, env)
        yield Configuration("feature", {**target, **args, **shape, "page_size": 64})
    for target in ("deepseek-v4", "deepseek-v3.2", "gpt-oss"):
        for args in (CHAIN, {**CHAIN, "attn_dp_size": 8}, {**CHAIN, "page_size": 64}):
            yield Configuration("feature", speculate("EAGLE", target, tp_size=8, **args))
