"""CUDA graphs: whether decode and prefill are captured, and which backends have no graphs."""

from __future__ import annotations

from speclaunch.engine.plan.settings import Settings, UnknownValueError

SIZES = "cuda_graph_bs_decode"
MOST = "cuda_graph_max_bs_decode"
SWITCH = "disable_cuda_graph"
"""The switch for all graphs up to 0.5.13."""
DECODE_SWITCH = "disable_decode_cuda_graph"
DECODE_BACKEND = "cuda_graph_backend_decode"
PREFILL_BACKEND = "cuda_graph_backend_prefill"
PIECEWISE = "disable_piecewise_cuda_graph"
BACKENDS_BY_PHASE = ">=0.5.14"
"""Releases with a separate graph backend for each phase (0.5.14 server_args.py:2920)."""
PREFILL_BY_DEFAULT = ">=0.5.10"
"""Releases that capture prefill graphs by default."""
EAGER = ("torch_native", "flex_attention")
"""Attention backends that run without graphs (0.5.23 arg_groups/attention_hook.py:124, 0.5.10
server_args.py:2301)."""


def decode_is_captured(settings: Settings) -> bool:
    """True if decode has GPU graphs. Raises UnknownValueError."""
    return settings.device != "cpu" and not (
        bool(settings.value(SWITCH)) or decode_alone_is_off(settings)
    )


def decode_alone_is_off(settings: Settings) -> bool:
    """True if only decode graphs are switched off, by a separate setting (0.5.14 and later)."""
    return bool(settings.value(DECODE_SWITCH)) or settings.value(DECODE_BACKEND) == "disabled"


def prefill_is_captured(settings: Settings) -> bool:
    """True if prefill has graphs: from 0.5.5 on request, from 0.5.10 by default.

    Raises UnknownValueError.
    """
    if settings.in_versions(BACKENDS_BY_PHASE):
        return settings.value(PREFILL_BACKEND) not in (None, "disabled")
    if settings.in_versions(PREFILL_BY_DEFAULT):
        return not settings.value(PIECEWISE)
    requested = settings.in_versions(">=0.5.5") and settings.value("enable_piecewise_cuda_graph")
    return bool(requested)


_MOST_SIZES = 1 << 16
"""Maximum length of a list of sizes. The engine's own lists have a few hundred."""


def span(first: int, last: int, step: int = 1) -> list[int]:
    """Return the graph sizes from `first` to `last`, inclusive.

    Raises UnknownValueError for more sizes than any engine could capture: a typo must not exhaust
    memory.
    """
    sizes = range(first, last + 1, step)
    if len(sizes) > _MOST_SIZES:
        raise UnknownValueError(f"a list of {len(sizes):,} CUDA graph sizes is too long")
    return list(sizes)
