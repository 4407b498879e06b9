"""The parameters and options of speculation itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from tools.verdicts.building import (
    BASES,
    CHAIN,
    EAGLE_LIKE,
    TREE,
    Args,
    Configuration,
    model,
    parameters,
    speculate,
)


def triples() -> Iterator[Configuration]:
    """Number of steps, width and verified tokens, with each of them left out."""
    numbers = [
        (None, None, None),
        (3, None, None),
        (None, 4, None),
        (None, None, 8),
        (3, 1, None),
        (3, None, 4),
        (None, 1, 4),
        (3, 1, 4),
        (3, 1, 9),
        (1, 1, 2),
        (16, 1, 17),
        (3, 4, None),
        (3, 4, 16),
        (1, 4, 64),
        (5, 8, 32),
        (0, 1, 1),
        (3, 1, 1),
    ]
    for base, (steps, topk, tokens) in itertools.product(BASES, numbers):
        yield Configuration("triple", {**BASES[base], **parameters(steps, topk, tokens)})


def second_generation() -> Iterator[Configuration]:
    """SGLANG_ENABLE_SPEC_V2 and what came before it."""
    for base, value, shape in itertools.product(
        (*EAGLE_LIKE, "ngram"), ("0", "1"), (CHAIN, TREE, {})
    ):
        if base == "ngram" and shape:
            continue
        env = {"SGLANG_ENABLE_SPEC_V2": value}
        yield Configuration("spec-v2", {**BASES[base], **shape}, env)
    for value, args in itertools.product(
        ("true", "False"),
        ({"disable_overlap_schedule": True}, {"enable_mixed_chunk": True}, {"page_size": 16}),
    ):
        env = {"SGLANG_ENABLE_SPEC_V2": value}
        yield Configuration("spec-v2", {**BASES["eagle3"], **TREE, **args}, env)
    for base, shape in itertools.product(("eagle3", "eagle", "standalone"), (CHAIN, TREE)):
        yield Configuration("spec-v2", {**BASES[base], **shape, "enable_beta_spec": True})


def options() -> Iterator[Configuration]:
    """The options of speculation itself, on the algorithms that know them and those that do not."""
    tables: list[tuple[Iterable[str], list[Args]]] = [
        (
            ("eagle3", "mtp", "standalone", "ngram"),
            [
                {"speculative_adaptive": True},
                {"speculative_adaptive": True, **CHAIN},
                {"speculative_adaptive": True, **CHAIN, "speculative_num_steps": 4},
                {"speculative_adaptive": True, **TREE},
                {"speculative_adaptive": True, "speculative_eagle_topk": 1},
            ],
        ),
        (
            ("eagle3", "mtp", "standalone", "ngram", "dflash", "dspark"),
            [
                {"speculative_use_rejection_sampling": True},
                {"speculative_use_rejection_sampling": True, **CHAIN},
                {"speculative_use_rejection_sampling": True, **TREE},
                {
                    "speculative_use_rejection_sampling": True,
                    **CHAIN,
                    "speculative_accept_threshold_single": 0.5,
                },
                {
                    "speculative_use_rejection_sampling": True,
                    **CHAIN,
                    "enable_deterministic_inference": True,
                },
                {"speculative_use_block_verification": True},
                {"speculative_use_block_verification": True, **CHAIN},
                {"speculative_accept_threshold_acc": 0.9},
            ],
        ),
        (
            ("eagle3", "standalone", "dflash", "ngram"),
            [
                {"speculative_draft_window_size": 512},
                {"speculative_draft_window_size": 0},
                {"speculative_draft_window_size": 8},
                {"speculative_draft_sink_size": 4},
                {"speculative_draft_window_size": 512, "speculative_draft_sink_size": 4},
                {"speculative_draft_window_size": 512, "speculative_draft_sink_size": -1},
            ],
        ),
        (
            ("dflash",),
            [
                {"speculative_dflash_block_size": size, **parameters(tokens=tokens)}
                for size, tokens in ((8, None), (0, None), (16, 16), (16, 8), (-4, None))
            ]
            + [parameters(3, 4, 16), parameters(tokens=12), parameters(2, 1, 3)],
        ),
        (
            ("dspark",),
            [
                {"speculative_dspark_block_size": size, **parameters(tokens=tokens)}
                for size, tokens in ((4, None), (0, None), (7, 8), (7, 7), (1, 2))
            ]
            + [parameters(tokens=8), parameters(tokens=9), parameters(3, 4, 8)],
        ),
        (
            ("ngram",),
            [
                {"speculative_ngram_max_bfs_breadth": 1},
                {"speculative_ngram_max_bfs_breadth": 0},
                {"speculative_ngram_min_bfs_breadth": 12},
                {"speculative_ngram_max_trie_depth": 1},
                {"speculative_ngram_capacity": 10},
                {"speculative_ngram_match_type": "PROB"},
                {"speculative_ngram_external_corpus_path": "models/corpus.jsonl"},
                {
                    "speculative_ngram_external_corpus_path": "models/corpus.jsonl",
                    "speculative_ngram_external_sam_budget": 8,
                },
                {
                    "speculative_ngram_external_corpus_path": "models/corpus.jsonl",
                    "speculative_ngram_external_sam_budget": 8,
                    **parameters(tokens=8),
                },
                {
                    "speculative_ngram_external_corpus_path": "models/corpus.jsonl",
                    "speculative_ngram_external_sam_budget": 4,
                    "speculative_ngram_external_corpus_max_tokens": 0,
                },
                {"speculative_ngram_external_sam_budget": 4},
                parameters(tokens=4),
                parameters(5, 4, 8),
                {"speculative_draft_model_path": "models/llama-3.2-1b"},
            ],
        ),
        (
            ("eagle3", "eagle", "mtp", "standalone"),
            [
                {"enable_multi_layer_eagle": True},
                {"enable_multi_layer_eagle": True, **CHAIN},
                {"enable_multi_layer_eagle": True, **TREE},
                {"speculative_token_map": "models/map.pt"},
                {"speculative_moe_runner_backend": "flashinfer_trtllm"},
                {"speculative_moe_runner_backend": "triton"},
                {"speculative_moe_a2a_backend": "deepep"},
                {"speculative_draft_model_quantization": "unquant"},
                {"quantization": "fp8"},
                {"speculative_draft_load_format": "dummy"},
                {"speculative_draft_model_revision": "v2"},
                {"context_length": 4096},
                {"context_length": 262144},
            ],
        ),
        (
            BASES,
            [
                {"weight_cache_mode": "client"},
                {"weight_cache_mode": "daemon"},
                {"enable_watermark": True},
                {"decoupled_spec_role": "verifier"},
                {"skip_server_warmup": True},
            ],
        ),
    ]
    for bases, variants in tables:
        for base, args in itertools.product(bases, variants):
            yield Configuration("option", {**BASES[base], **args})
    uno: list[Args] = [
        {},
        {"uno_lora_path": "models/adapter"},
        {"uno_lora_path": "models/adapter", **parameters(tokens=4)},
        {"uno_lora_path": "models/adapter", **parameters(3, 4, 16)},
        {"uno_lora_path": "models/adapter", **parameters(3, 4, 3)},
        {"uno_lora_path": "models/adapter", **parameters(3, 2, 12)},
        {"uno_lora_path": "models/adapter", **parameters(tokens=4), "tp_size": 2},
        {
            "uno_lora_path": "models/adapter",
            **parameters(tokens=4),
            "attention_backend": "flashinfer",
        },
        {
            "uno_lora_path": "models/adapter",
            **parameters(tokens=4),
            "speculative_draft_model_path": "models/llama-3.2-1b",
        },
        {
            "uno_lora_path": "models/adapter",
            **parameters(tokens=4),
            "enable_deterministic_inference": True,
        },
    ]
    for args in uno:
        yield Configuration("option", speculate("UNO", "llama", **args))


def names() -> Iterator[Configuration]:
    """Algorithms by other names, and parameters without any algorithm."""
    spellings = {
        "eagle3": ("eagle3", "Eagle3", "EAGLE-3", "EAGLE_3", "eagle_3"),
        "mtp": ("eagle", "nextn", "MTP", "mtp", "Nextn"),
        "standalone": ("standalone", "Standalone", "DRAFT_MODEL"),
        "ngram": ("ngram", "Ngram", "N-GRAM", "LOOKAHEAD"),
        "dflash": ("dflash", "DFlash", "D-FLASH"),
        "dspark": ("dspark", "DSpark"),
    }
    for base, found in spellings.items():
        for name in (*found, "none", "NONE"):
            yield Configuration("name", {**BASES[base], "speculative_algorithm": name})
    for args in (CHAIN, TREE, parameters(tokens=8), parameters(3), parameters(topk=4)):
        yield Configuration("name", {**model("llama"), **args})
    yield Configuration("name", {**model("llama"), "speculative_draft_model_path": "models/absent"})
