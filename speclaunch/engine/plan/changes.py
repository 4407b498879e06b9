"""What the engine changes by itself, and why."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct


class ChangeKind(StrEnum):
    """A kind of change. Which rule reports it is the rule's affair (`checks/rules/changes.py`);
    some none does: they are seen in a plan alone."""

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
    PREFILL_GRAPHS_OFF = "piecewise graphs of prefill switched off"
    DRAFT_REVISION = "revision of the draft"
    ATTENTION_BACKEND = "another attention backend"
    RADIX_CACHE_OFF = "radix cache switched off"
    FRACTION_LOWERED = "memory fraction lowered"


class Change(Struct, frozen=True):
    """Something that the engine does to a value by itself.

    `why` says it in one sentence, `source` is the engine's file and line. `said` is False where the
    engine changes it without a word.
    """

    kind: ChangeKind
    name: str
    before: Any
    after: Any
    why: str
    source: str
    said: bool = True


class Reason(Struct, frozen=True):
    """Why a value is what it is, in one sentence, and the engine's file and line that does it."""

    why: str
    source: str
