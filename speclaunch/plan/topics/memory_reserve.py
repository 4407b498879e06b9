"""MiB that the engine puts aside of a GPU, by its rules of thumb (0.5.3 and later).

`handle_gpu_memory_settings`: sglang 0.5.23 arg_groups/memory_hook.py:47, 0.5.3 server_args.py:700.
It means to be on the safe side.
"""

from __future__ import annotations

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
