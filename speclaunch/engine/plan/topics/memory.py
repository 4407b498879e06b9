"""Memory: where a draft's is taken from, and what the engine puts aside of a GPU.

Up to 0.5.13 the target is made ready first (weights, pool, graphs), and the draft is loaded into
what the fraction leaves (0.5.10 managers/scheduler.py:578, speculative/eagle_worker.py). From
0.5.14 the weights of both are loaded before any pool, and the draft's weights and cache come out of
the static part (0.5.23 managers/scheduler.py:1128, 0.5.14
model_executor/model_runner_kv_cache_mixin.py).

The numbers of MiB are the engine's rules of thumb (0.5.3 and later), which mean to be on the safe
side: `handle_gpu_memory_settings`, sglang 0.5.23 arg_groups/memory_hook.py:47, 0.5.3
server_args.py:700.
"""

from __future__ import annotations

from speclaunch.engine.plan.settings import Settings

FIRST_IN_POOL = "0.5.14"
"""The first release that pays the draft from the pool."""
IN_POOL = f">={FIRST_IN_POOL}"


def draft_in_pool(settings: Settings) -> bool:
    """Whether the draft's weights and cache are taken from the static part, and loaded before the
    pool is sized; else from what that part leaves, and afterwards."""
    return settings.in_versions(IN_POOL)


BALANCED = 0.9
"""Ranks are refused whose free memory is a smaller share of another's (0.5.23
distributed/bootstrap.py:445, 0.5.7 model_runner.py:788), ..."""
BALANCE_CHECK = "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK"
"""... unless this variable is false (0.5.7 and later), ..."""
NO_BALANCE_CHECK = "SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK"
"""... or this one is true (up to 0.5.17)."""
OWN = 512
"""Metadata of attention backends."""
TOKEN = 1.5
"""Activations of a token of prefill."""
FEWEST_TOKENS = 2048
DECODE_GRAPH = 2
"""A request of the largest graph of decode."""
DECODE_GRAPH_RANK = 3
"""The same for each rank of DP attention, as long as the graph is no larger than `LARGE_GRAPH`."""
LARGE_GRAPH = 300
DECODE_GRAPH_RANK_LARGE = 4.5
PREFILL_GRAPH = 8
"""A graph of prefill, of whatever size."""
PREFILL_GRAPHS_LATENT = 1536
"""All graphs of prefill of a model with latent attention."""
