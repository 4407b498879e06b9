"""Data parallelism: ranks that share a batch's attention, and replicas with GPUs of their own.

Up to 0.5.21 `enable_dp_attention` makes the `dp_size` ranks attention ranks. From 0.5.22 that pair
is rewritten to `attn_dp_size` before anything else reads it, and `dp_size` counts replicas alone
(0.5.23 arg_groups/parallel_hook.py:39, 0.5.2 server_args.py:509).
"""

from __future__ import annotations

from speclaunch.plan.settings import Settings, UnknownValueError

ATTENTION_RANKS = "attn_dp_size"
REPLICAS = "dp_size"
SWITCH = "enable_dp_attention"
OWN_ARGUMENT = ">=0.5.22"
"""Attention ranks have an argument of their own."""
HEAD = "enable_dp_lm_head"
RESET = ">=0.5.2"
"""A single rank switches DP attention off (0.5.2 server_args.py:509), ..."""
HEAD_RESET = ">=0.5.3"
"""... and `HEAD`."""
_MOST = 1 << 16
"""No deployment has more ranks."""


def attention_ranks(settings: Settings) -> int:
    """Ranks of data-parallel attention; 1 where there is none. Raises UnknownValueError."""
    if settings.in_versions(OWN_ARGUMENT):
        return _count(settings, ATTENTION_RANKS)
    return _count(settings, REPLICAS) if settings.value(SWITCH) else 1


def is_on(settings: Settings) -> bool:
    """Whether attention is data-parallel for the steps that come before a single rank is reset
    (memory, graphs of prefill): up to 0.5.21 by the switch alone. Raises UnknownValueError."""
    if settings.in_versions(OWN_ARGUMENT):
        return attention_ranks(settings) > 1
    return bool(settings.value(SWITCH))


def replicas(settings: Settings) -> int:
    """Copies of the whole model, each with GPUs of its own. Raises UnknownValueError."""
    if not settings.in_versions(OWN_ARGUMENT) and settings.value(SWITCH):
        return 1
    return _count(settings, REPLICAS)


def expert_ranks(settings: Settings) -> int:
    """Groups of ranks that hold different experts: an all-to-all backend, or a switch of older
    releases, sets `ep_size` to `tp_size`. Raises UnknownValueError."""
    tensor = _count(settings, "tp_size")
    found = _count(settings, "ep_size")
    switched = settings.value("enable_ep_moe") or settings.value("enable_deepep_moe")
    if switched or str(settings.value("moe_a2a_backend") or "none") != "none":
        return max(found, tensor)
    return found


def _count(settings: Settings, name: str) -> int:
    value = settings.value(name)
    if value is None:
        return 1
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST:
        raise UnknownValueError(f"`{name}` is {value}")
    return value
