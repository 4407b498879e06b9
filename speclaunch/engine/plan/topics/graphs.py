"""CUDA graphs: whether decode and prefill are captured, and what never is."""

from __future__ import annotations

from speclaunch.engine.plan.settings import Settings, UnknownValueError

SIZES = "cuda_graph_bs_decode"
MOST = "cuda_graph_max_bs_decode"
SWITCH = "disable_cuda_graph"
"""Up to 0.5.13 for all graphs that there are."""
DECODE_SWITCH = "disable_decode_cuda_graph"
DECODE_BACKEND = "cuda_graph_backend_decode"
PREFILL_BACKEND = "cuda_graph_backend_prefill"
PIECEWISE = "disable_piecewise_cuda_graph"
BACKENDS_BY_PHASE = ">=0.5.14"
"""Each phase has a backend of its own (0.5.14 server_args.py:2920)."""
PREFILL_BY_DEFAULT = ">=0.5.10"
"""Prefill is captured unless something switches it off."""
EAGER = ("torch_native", "flex_attention")
"""Attention backends that run without graphs (0.5.23 arg_groups/attention_hook.py:124, 0.5.10
server_args.py:2301)."""


def decode_is_captured(settings: Settings) -> bool:
    """Whether decode has graphs of a GPU. Raises UnknownValueError."""
    return settings.device != "cpu" and not (
        bool(settings.value(SWITCH)) or decode_alone_is_off(settings)
    )


def decode_alone_is_off(settings: Settings) -> bool:
    """Whether the graphs of decode are switched off by a word for them alone (0.5.14 and later)."""
    return bool(settings.value(DECODE_SWITCH)) or settings.value(DECODE_BACKEND) == "disabled"


def prefill_is_captured(settings: Settings) -> bool:
    """Whether prefill has graphs: by default from 0.5.10, from 0.5.5 where they are asked for.

    Raises UnknownValueError.
    """
    if settings.in_versions(BACKENDS_BY_PHASE):
        return settings.value(PREFILL_BACKEND) not in (None, "disabled")
    if settings.in_versions(PREFILL_BY_DEFAULT):
        return not settings.value(PIECEWISE)
    asked = settings.in_versions(">=0.5.5") and settings.value("enable_piecewise_cuda_graph")
    return bool(asked)


_MOST_SIZES = 1 << 16
"""Of one list; the engines' own have some hundreds."""


def span(first: int, last: int, step: int = 1) -> list[int]:
    """Sizes of graphs from one to another, that one included.

    Raises UnknownValueError for more than any engine could capture: a slip of the keys must not
    fill the memory.
    """
    sizes = range(first, last + 1, step)
    if len(sizes) > _MOST_SIZES:
        raise UnknownValueError(f"a list of {len(sizes):,} sizes of CUDA graphs is not computed")
    return list(sizes)
