"""Changes that the engine makes to arguments, with the reasons."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct


class ChangeKind(StrEnum):
    """A kind of change that the engine makes. `checks/rules/arguments.py` reports some kinds; the
    others appear only in a plan."""

    CHAIN_TOKENS = "draft tokens corrected for a chain"
    CHOSEN_PARAMETERS = "steps, topk and draft tokens chosen by the engine"
    RUNNING_REQUESTS = "limit of running requests filled in"
    OVERLAP = "overlap schedule switched"
    MIXED_CHUNK_OFF = "mixed chunks switched off"
    TARGET_IS_DRAFT = "the target used as the draft"
    ALGORITHM = "another algorithm"
    PAGE_SIZE = "page size forced"
    DRAFT_QUANTIZATION = "quantization inherited by the draft"
    DP_ATTENTION = "data-parallel attention reset or rewritten"
    ONE_BLOCK = "one block at a time"
    NGRAM_TOPK = "topk of NGRAM"
    ADAPTIVE_OFF = "adaptive speculation switched off"
    MULTI_LAYER_EAGLE = "multi-layer EAGLE switched on"
    TOPK_LOWERED = "topk lowered for pages"
    REJECTION_SAMPLING_ON = "rejection sampling switched on"
    PREFILL_GRAPHS_OFF = "piecewise prefill graphs switched off"
    DRAFT_REVISION = "revision of the draft"
    ATTENTION_BACKEND = "another attention backend"
    RADIX_CACHE_OFF = "radix cache switched off"
    FRACTION_LOWERED = "memory fraction lowered"


class Change(Struct, frozen=True):
    """A change that the engine makes to a value.

    `why` is the reason in one sentence, `source` the engine's file and line. `logged` is False if
    the engine does not log the change.
    """

    kind: ChangeKind
    name: str
    before: Any
    after: Any
    why: str
    source: str
    logged: bool = True


class Reason(Struct, frozen=True):
    """The reason for a value in one sentence, with the engine's file and line."""

    why: str
    source: str
