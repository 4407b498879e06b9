"""Limits of a fit search: the settings that may change, and their floors."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Steppable(StrEnum):
    """A setting that a fit search or recovery after a failed start may change."""

    FRACTION = "mem_fraction_static"
    GRAPHS = "cuda_graph_max_bs_decode"
    TREE = "draft_tree"
    """`speculative_num_steps`, `speculative_eagle_topk` and `speculative_num_draft_tokens`, which
    change only together."""
    RUNNING = "max_running_requests"
    CHUNK = "chunked_prefill_size"
    POOL = "max_total_tokens"


class FitFloors(Struct, frozen=True):
    """The lowest value to try for each setting."""

    mem_fraction_static: float = 0.2
    cuda_graph_max_bs_decode: int = 2
    speculative_num_steps: int = 1
    max_running_requests: int = 4
    chunked_prefill_size: int = 1024
    max_total_tokens: int = 1024


class FitLimits(Struct, frozen=True):
    """Settings that a fit search may change, and how far."""

    order: tuple[Steppable, ...] = tuple(Steppable)
    """Settings that may change."""
    floors: FitFloors = FitFloors()
    most_fraction: float = 0.98
    """Largest `mem_fraction_static` to try."""
    tokens_within: float = 0.2
    """Share of the KV tokens that a search may give up at no cost."""


DEFAULT_LIMITS = FitLimits()
"""Limits if the recipe sets none; also the defaults of the recipe's sections."""
