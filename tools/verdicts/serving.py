"""What a server does besides: parallelism, scheduling, roles, memory; and mixtures of it all."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from tools.verdicts.building import (
    BASES,
    CHAIN,
    TREE,
    Args,
    Configuration,
    chain_for,
    model,
    parameters,
)


def parallel() -> Iterator[Configuration]:
    """Tensor, pipeline, data and expert parallelism."""
    layouts: list[Args] = [
        {"tp_size": 2, "dp_size": 2, "enable_dp_attention": True},
        {"tp_size": 4, "dp_size": 2, "enable_dp_attention": True, "enable_dp_lm_head": True},
        {"dp_size": 1, "enable_dp_attention": True},
        {"tp_size": 8, "attn_dp_size": 4},
        {"tp_size": 8, "attn_dp_size": 8, "enable_dp_lm_head": True},
        {"tp_size": 4, "dp_size": 2},
        {"tp_size": 2, "dp_size": 4, "enable_dp_attention": True},
        {"pp_size": 2},
        {"pp_size": 2, "disable_overlap_schedule": True},
        {"tp_size": 2, "pp_size": 2, "disaggregation_mode": "prefill"},
        {"tp_size": 8, "ep_size": 8},
        {"tp_size": 3},
    ]
    for base, layout in itertools.product(BASES, layouts):
        yield Configuration("parallel", {**BASES[base], **chain_for(base), **layout})
    for layout in layouts:
        yield Configuration("parallel", {**model("qwen3-moe"), **layout})


def scheduling() -> Iterator[Configuration]:
    """What the scheduler does besides: chunks, overlap, determinism, adapters, compilation."""
    switches: list[Args] = [
        {"enable_mixed_chunk": True},
        {"enable_mixed_chunk": True, "chunked_prefill_size": -1},
        {"enable_mixed_chunk": True, "disable_overlap_schedule": True},
        {"disable_overlap_schedule": True},
        {"enable_deterministic_inference": True},
        {"enable_deterministic_inference": True, "attention_backend": "flashinfer"},
        {"enable_lora": True, "max_lora_rank": 16, "lora_target_modules": ["q_proj"]},
        {"lora_paths": ["a=models/adapter"]},
        {"enable_torch_compile": True},
        {"enable_torch_compile": True, "disable_cuda_graph_padding": True},
        {"disable_cuda_graph": True},
        {"disable_radix_cache": True},
        {"enable_two_batch_overlap": True},
        {"enable_pdmux": True},
        {"enable_streaming_session": True},
        {"enable_strict_thinking": True},
        {"min_free_slots_delay": 4},
        {"kv_cache_dtype": "fp8_e4m3"},
        {"kv_cache_dtype": "nvfp4"},
        {"sampling_backend": "pytorch"},
        {"enable_hierarchical_cache": True},
        {"dtype": "float16"},
    ]
    for number, switch in enumerate(switches):
        yield Configuration("schedule", {**model("llama"), **switch})
        for offset, base in enumerate(BASES):
            # The first twelve concern speculation; of the others each meets half the algorithms.
            if number < 12 or (number + offset) % 2:
                yield Configuration("schedule", {**BASES[base], **chain_for(base), **switch})


def disaggregation() -> Iterator[Configuration]:
    """Prefill and decode servers."""
    roles: list[Args] = [
        {"disaggregation_mode": "prefill"},
        {"disaggregation_mode": "decode"},
        {"disaggregation_mode": "decode", "disaggregation_decode_enable_radix_cache": True},
        {"disaggregation_mode": "decode", "disaggregation_decode_enable_offload_kvcache": True},
        {"disaggregation_mode": "prefill", "enable_pd_role_switch": True},
        {"disaggregation_mode": "decode", "enable_pd_role_switch": True},
        {"enable_pd_role_switch": True},
    ]
    for base, role in itertools.product(BASES, roles):
        yield Configuration("disaggregation", {**BASES[base], **chain_for(base), **role})
    for role in roles:
        yield Configuration("disaggregation", {**model("llama"), **role})


def memory() -> Iterator[Configuration]:
    """Requests, capture sizes, fractions, chunks."""
    values: list[Args] = [
        {"max_running_requests": 1},
        {"max_running_requests": 200},
        {"max_running_requests": 1024},
        {"cuda_graph_max_bs_decode": 4},
        {"cuda_graph_max_bs_decode": 300},
        {"cuda_graph_bs_decode": [1, 2, 4, 8]},
        {"cuda_graph_bs_decode": [1, 2, 4, 64], "cuda_graph_max_bs_decode": 16},
        {"disable_cuda_graph_padding": True, "cuda_graph_max_bs_decode": 12},
        {"mem_fraction_static": 0.7},
        {"chunked_prefill_size": 4096},
        {"chunked_prefill_size": -1},
        {"chunked_prefill_size": 4100, "page_size": 64},
        {"max_running_requests": 16, "cuda_graph_max_bs_decode": 160},
        {"mem_fraction_static": 1.5},
        {"tp_size": 8, "mem_fraction_static": 0.85, "max_running_requests": 128},
    ]
    for args in values:
        yield Configuration("memory", {**model("llama"), **args})
        for base in ("eagle3", "standalone", "ngram", "dflash"):
            yield Configuration("memory", {**BASES[base], **chain_for(base), **args})


def mixtures() -> Iterator[Configuration]:
    """Three things at once: pairs of dimensions that the groups above do not bring together."""
    dimensions: list[Sequence[Args]] = [
        [{}, CHAIN, TREE, parameters(5, 2, 8), parameters(2, 1, 9)],
        [
            {},
            {"attention_backend": "fa3"},
            {"attention_backend": "flashinfer"},
            {"attention_backend": "triton"},
            {"attention_backend": "trtllm_mha"},
            {"decode_attention_backend": "flashinfer"},
            {"speculative_draft_attention_backend": "triton"},
        ],
        [{}, {"page_size": 16}, {"page_size": 64}, {"page_size": 1}],
        [
            {},
            {"tp_size": 4, "dp_size": 4, "enable_dp_attention": True},
            {"tp_size": 4, "attn_dp_size": 2},
            {"pp_size": 2},
            {"tp_size": 2},
        ],
        [
            {},
            {"enable_mixed_chunk": True},
            {"disable_overlap_schedule": True},
            {"enable_lora": True, "max_lora_rank": 8, "lora_target_modules": ["q_proj"]},
            {"disaggregation_mode": "decode"},
            {"enable_deterministic_inference": True},
            {"speculative_adaptive": True},
            {"speculative_use_rejection_sampling": True},
            {"disable_radix_cache": True},
        ],
        [
            {},
            {"max_running_requests": 32},
            {"cuda_graph_max_bs_decode": 24},
            {"disable_cuda_graph": True},
            {"mem_fraction_static": 0.8},
            {"chunked_prefill_size": 2048},
        ],
    ]
    for number in range(200):
        base = list(BASES)[number % len(BASES)]
        args = dict(BASES[base])
        shape = number * 7 + 3
        for position, values in enumerate(dimensions):
            # A different stride for each dimension, coprime with none of the others' lengths.
            step = (5, 3, 7, 11, 13, 17)[position]
            args |= values[(shape // (position + 1) + number * step) % len(values)]
        yield Configuration("mixture", args)
