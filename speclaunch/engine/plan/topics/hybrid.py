"""Targets with linear-attention layers, whose states are cached next to the KV cache."""

from __future__ import annotations

from speclaunch.engine.facts.facts import Checkpoint
from speclaunch.engine.plan.settings import Settings

STRATEGY = "mamba_radix_cache_strategy"
CHOSEN = ">=0.5.14"
"""Releases that list the architectures (`engine/plan/architectures.py`) and choose a strategy
(`_handle_mamba_radix_cache`, 0.5.23 arg_groups/overrides.py:446, 0.5.14 server_args.py:4338)."""
BUFFERED = ("extra_buffer", "extra_buffer_lazy")
"""Strategies with a buffer in addition to the state cache."""
AMD_DROPS_CACHE = ">=0.5.11"
"""Releases that drop the state cache on AMD GPUs if speculation is used with a strategy without a
buffer. On other GPUs they refuse to start (0.5.11 server_args.py:2451)."""
NEEDS_A_STATE = ">=0.5.13"
"""Releases with a separate message if no state fits (0.5.23
mem_cache/kv_cache_configurator.py:3394)."""
_BUFFERED_BY = (None, "triton")


def has_states(target: Checkpoint) -> bool:
    """True if a hybrid target has layers with states. A Granite model may have none."""
    granite = (target.architecture or "").startswith("GraniteMoeHybrid")
    return not granite or "mamba" in (target.config.get("layer_types") or ())


def backend_buffers(settings: Settings) -> bool:
    """True if the linear-attention backend supports a state buffer (extra_buffer).

    Raises UnknownValueError.
    """
    return settings.value("linear_attn_backend") in _BUFFERED_BY
