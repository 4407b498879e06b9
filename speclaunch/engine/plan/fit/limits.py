"""Limits of a fit search: its settings and their floors."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Steppable(StrEnum):
    """A setting that a search, and recovery after a failed start, may change."""

    FRACTION = "mem_fraction_static"
    GRAPHS = "cuda_graph_max_bs_decode"
    TREE = "draft_tree"
    """`speculative_num_steps`, `speculative_eagle_topk` and `speculative_num_draft_tokens`, which
    only change together."""
    RUNNING = "max_running_requests"
    CHUNK = "chunked_prefill_size"
    POOL = "max_total_tokens"


class FitFloors(Struct, frozen=True):
    """The least value of each setting."""

    mem_fraction_static: float = 0.2
    cuda_graph_max_bs_decode: int = 2
    speculative_num_steps: int = 1
    max_running_requests: int = 4
    chunked_prefill_size: int = 1024
    max_total_tokens: int = 1024


class FitLimits(Struct, frozen=True):
    """The limits of a search."""

    order: tuple[Steppable, ...] = tuple(Steppable)
    """Settings that may change."""
    floors: FitFloors = FitFloors()
    most_fraction: float = 0.98
    """The largest `mem_fraction_static`."""
    tokens_within: float = 0.2
    """Losing this share of the KV tokens is preferred to shallower speculation."""


DEFAULT_LIMITS = FitLimits()
"""The limits if no recipe sets any. The recipe's sections have these defaults."""
