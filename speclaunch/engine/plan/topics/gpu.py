"""CUDA graphs, memory of the draft, and the engine's reserve on a GPU.

Up to 0.5.13 the target is prepared first (weights, pool, graphs). The draft is then loaded into the
memory outside the static fraction (0.5.10 managers/scheduler.py:578, speculative/eagle_worker.py).

From 0.5.14 the weights of both models are loaded before any pool. The draft's weights and cache
are in the static fraction (0.5.23 managers/scheduler.py:1128, 0.5.14
model_executor/model_runner_kv_cache_mixin.py).

Numbers in MiB are the engine's conservative rules of thumb (0.5.3 and later):
`handle_gpu_memory_settings`, sglang 0.5.23 arg_groups/memory_hook.py:47, 0.5.3 server_args.py:700.
"""

from __future__ import annotations

from speclaunch.engine.plan.settings import Settings, UnknownValueError

FRACTION = "mem_fraction_static"
CHUNK = "chunked_prefill_size"
SIZES = "cuda_graph_bs_decode"
MOST = "cuda_graph_max_bs_decode"
GRAPHS_SWITCH = "disable_cuda_graph"
"""The switch that disables all graphs (up to 0.5.13)."""
DECODE_SWITCH = "disable_decode_cuda_graph"
DECODE_BACKEND = "cuda_graph_backend_decode"
PREFILL_BACKEND = "cuda_graph_backend_prefill"
PIECEWISE = "disable_piecewise_cuda_graph"
BACKENDS_BY_PHASE = ">=0.5.14"
"""Releases with a separate graph backend for each phase (0.5.14 server_args.py:2920)."""
PREFILL_BY_DEFAULT = ">=0.5.10"
EAGER = ("torch_native", "flex_attention")
"""Attention backends that run without graphs (0.5.23 arg_groups/attention_hook.py:124, 0.5.10
server_args.py:2301)."""


def decode_is_captured(settings: Settings) -> bool:
    """True if the engine captures decode graphs. Raises UnknownValueError."""
    return settings.device != "cpu" and not (
        bool(settings.value(GRAPHS_SWITCH)) or decode_alone_is_off(settings)
    )


def decode_alone_is_off(settings: Settings) -> bool:
    """True if only decode graphs are switched off, by a separate setting (0.5.14 and later)."""
    return bool(settings.value(DECODE_SWITCH)) or settings.value(DECODE_BACKEND) == "disabled"


def prefill_is_captured(settings: Settings) -> bool:
    """True if the engine captures prefill graphs (from 0.5.5 on request, from 0.5.10 by default).

    Raises UnknownValueError.
    """
    if settings.in_versions(BACKENDS_BY_PHASE):
        return settings.value(PREFILL_BACKEND) not in (None, "disabled")
    if settings.in_versions(PREFILL_BY_DEFAULT):
        return not settings.value(PIECEWISE)
    requested = settings.in_versions(">=0.5.5") and settings.value("enable_piecewise_cuda_graph")
    return bool(requested)


_MOST_SIZES = 1 << 16
"""Maximum length of a list of sizes. The engine's own lists have a few hundred entries."""


def span(first: int, last: int, step: int = 1) -> list[int]:
    """Return the graph sizes from `first` to `last`, inclusive.

    Raises UnknownValueError for more sizes than any engine could capture, because a typo must not
    exhaust memory.
    """
    sizes = range(first, last + 1, step)
    if len(sizes) > _MOST_SIZES:
        raise UnknownValueError(f"a list of {len(sizes):,} CUDA graph sizes is too long")
    return list(sizes)


FIRST_IN_POOL = "0.5.14"
"""The first release that deducts the draft from the pool."""
IN_POOL = f">={FIRST_IN_POOL}"


def draft_in_pool(settings: Settings) -> bool:
    """True if the draft's weights and cache are in the static fraction, and its weights load
    before the pool is sized.

    Otherwise the draft loads afterwards, into the remaining memory.
    """
    return settings.in_versions(IN_POOL)


BALANCED = 0.9
"""Minimum ratio of free memory between two ranks. The engine refuses to start if the ratio is lower
(0.5.23 distributed/bootstrap.py:445, 0.5.7 model_runner.py:788)."""
BALANCE_CHECK = "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK"
"""Environment variable that disables the memory balance check if set to false (0.5.7 and later)."""
NO_BALANCE_CHECK = "SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK"
"""Environment variable that disables the memory balance check if set to true (up to 0.5.17)."""
OWN = 512
"""MiB reserved for the metadata of attention backends."""
TOKEN = 1.5
"""MiB reserved for the activations of each prefill token."""
FEWEST_TOKENS = 2048
DECODE_GRAPH = 2
"""MiB reserved per request of the largest decode graph."""
DECODE_GRAPH_RANK = 3
"""MiB reserved per request and DP attention rank for a decode graph up to `LARGE_GRAPH`."""
LARGE_GRAPH = 300
DECODE_GRAPH_RANK_LARGE = 4.5
PREFILL_GRAPH = 8
"""MiB reserved per prefill graph, regardless of the graph's size."""
PREFILL_GRAPHS_LATENT = 1536
"""MiB reserved for all prefill graphs of a model with latent attention."""
