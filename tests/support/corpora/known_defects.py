"""Sound deployments, and what can be wrong in them: which rule finds it, and at which argument."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_EAGLE3 = {
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}
_CHAIN = {**_EAGLE3, "speculative_algorithm": "EAGLE"}


@dataclass(frozen=True, slots=True)
class Sound:
    """A deployment without a defect: its arguments, by the names of the newest release."""

    name: str
    args: Mapping[str, Any]
    versions: tuple[str, ...] = ("0.5.12.post1", "0.5.18", "0.5.23")


SOUND = (
    Sound(
        "llama31_eagle3",
        {
            "model_path": "meta-llama/Llama-3.1-8B-Instruct",
            **_EAGLE3,
            "speculative_draft_model_path": "jamesliu1/sglang-EAGLE3-Llama-3.1-Instruct-8B",
            "context_length": 2048,
            "dtype": "float16",
        },
    ),
    Sound("glm46_mtp", {"model_path": "zai-org/GLM-4.6", **_CHAIN, "tp_size": 8}),  # on 8 x 141 GB
    Sound(
        "qwen25_ngram",
        {
            "model_path": "Qwen/Qwen2.5-7B-Instruct",
            "speculative_algorithm": "NGRAM",
            "speculative_num_draft_tokens": 12,
        },
    ),
    Sound(
        "qwen3_standalone",
        {
            "model_path": "Qwen/Qwen3-8B",
            **_EAGLE3,
            "speculative_algorithm": "STANDALONE",
            "speculative_draft_model_path": "Qwen/Qwen3-0.6B",
            "mem_fraction_static": 0.5,
        },
    ),
)
EXTRAS: tuple[tuple[str, Any], ...] = (
    ("enable_metrics", True),
    ("log_level", "warning"),
    ("schedule_policy", "fcfs"),
    ("random_seed", 7),
    ("watchdog_timeout", 600),
    ("decode_log_interval", 10),
    ("served_model_name", "chat"),
)
"""What no rule has anything against."""


@dataclass(frozen=True, slots=True)
class Defect:
    """One mistake. `at`: the argument at which it is found, by the name it is written with."""

    code: str
    severity: str
    at: str
    args: Mapping[str, Any]
    """What it sets; None takes an argument away."""
    fixed: Mapping[str, Any] | None = None
    """What the fix sets; None: there is no one obvious edit."""
    only: frozenset[str] = frozenset()
    """The sound deployments that it makes sense for; empty: all."""
    versions: tuple[str, ...] = ("0.5.12.post1", "0.5.18", "0.5.23")


_CHAINS = frozenset({"llama31_eagle3", "glm46_mtp", "qwen3_standalone"})
_NGRAM = frozenset({"qwen25_ngram"})
_LLAMA = frozenset({"llama31_eagle3"})

DEFECTS = (
    Defect(
        "SPL001",
        "error",
        "stream_intervall",
        {"stream_intervall": 2},
        {"stream_intervall": None, "stream_interval": 2},
    ),
    Defect(
        "SPL001",
        "error",
        "enable_cache_raport",
        {"enable_cache_raport": True},
        {"enable_cache_raport": None, "enable_cache_report": True},
    ),
    Defect("SPL003", "error", "dtype", {"dtype": "float99"}),
    Defect("SPL003", "error", "random_seed", {"random_seed": "seven"}),
    Defect("SPL003", "error", "schedule_policy", {"schedule_policy": "fastest"}),
    Defect(
        "SPL105",
        "warning",
        "speculative_num_draft_tokens",
        {"speculative_num_draft_tokens": 7},
        {"speculative_num_draft_tokens": 4},
        _CHAINS,
    ),
    Defect(
        "SPL103",
        "error",
        "speculative_num_steps",
        {"speculative_eagle_topk": None, "speculative_num_draft_tokens": None},
        {"speculative_eagle_topk": 1},
        _CHAINS,
    ),
    Defect(
        "SPL110",
        "warning",
        "speculative_accept_threshold_acc",
        {"speculative_accept_threshold_acc": 1.5},
        {"speculative_accept_threshold_acc": 1.0},
        _CHAINS,
    ),
    Defect(
        "SPL211",
        "error",
        "enable_dp_attention",
        {"enable_dp_attention": True, "dp_size": 2, "tp_size": 2},
        {"enable_dp_attention": None},
        _NGRAM,
    ),
    Defect(
        "SPL212",
        "error",
        "enable_dp_attention",
        {"enable_dp_attention": True, "dp_size": 2, "tp_size": 2},
        {"enable_dp_attention": None},
        frozenset({"qwen3_standalone"}),
    ),
    Defect(
        "SPL251",
        "error",
        "tokenizer_worker_num",
        {"tokenizer_worker_num": 0},
        {"tokenizer_worker_num": None},
    ),
    Defect(
        "SPL257",
        "error",
        "chunked_prefill_size",
        {"chunked_prefill_size": 1000, "page_size": 64},
        {"chunked_prefill_size": 1024},
        _CHAINS,
    ),
    Defect(
        "SPL262",
        "error",
        "served_model_name",
        {"served_model_name": "chat:8b"},
        {"served_model_name": "chat-8b"},
    ),
    Defect(
        "SPL402",
        "warning",
        "speculative_draft_model_path",
        {"context_length": None},
        {"context_length": 2048},
        _LLAMA,
    ),
    Defect(
        "SPL505",
        "warning",
        "speculative_draft_model_path",
        {"speculative_draft_model_path": "Qwen/Qwen3-0.6B"},
        {"speculative_draft_model_path": None},
        _NGRAM,
    ),
    Defect("SPL506", "error", "tp_size", {"tp_size": 16}, {"tp_size": 8}, _CHAINS),
    Defect(
        "SPL256",
        "error",
        "dp_size",
        {"tp_size": 8, "dp_size": 3, "enable_dp_attention": True},
        None,
        frozenset({"glm46_mtp"}),
    ),
    Defect(
        "SPL221",
        "error",
        "pp_size",
        {"pp_size": 2, "mem_fraction_static": 0.8},  # the default is tight with half of the weights
        {"pp_size": None},
        _LLAMA,
        ("0.5.12.post1", "0.5.18"),
    ),
    Defect(
        "SPL107",
        "warning",
        "speculative_num_steps",
        {"speculative_num_steps": 0, "speculative_num_draft_tokens": None},
        {"speculative_num_steps": 1},
        _LLAMA,
        ("0.5.18", "0.5.23"),
    ),
    Defect("SPL803", "error", "port", {"port": 99999}, {"port": None}),
    Defect("SPL801", "info", "host", {"host": "0.0.0.0"}),
)
