"""The KV pool: its tokens, and the number of requests that can run at the same time.

Follows sglang 0.5.23 model_executor/pool_configurator.py and
mem_cache/kv_cache_configurator.py:3007, 0.5.10 model_executor/model_runner_kv_cache_mixin.py:144
and 808, 0.5.6 model_runner.py:1620, and 0.4.6 model_runner.py:791.
"""

from __future__ import annotations

from msgspec import Struct

from speclaunch.engine.plan.memory.estimates import number
from speclaunch.engine.plan.memory.kv import PoolLayout, States, StateSettings, room
from speclaunch.engine.plan.plan import Plan
from speclaunch.engine.plan.topics.algorithms import EAGLE_FAMILY
from speclaunch.engine.plan.topics.parallel import attention_ranks

_FEWEST, _MOST = 2048, 4096
"""Minimum and maximum of the engine's default number of requests."""
_INDEX_BYTES = 4


class SlotSettings(Struct, frozen=True):
    """Settings that determine the request limit for a token count."""

    explicit: int | None
    """`max_running_requests`: the user's value, or 48 with speculation; None otherwise."""
    ranks: int
    fewest: int
    """Minimum number of running requests per rank."""
    context: int
    extra: int
    """Number of positions in each row of the position table, in addition to the context."""
    era: int
    """Method by which the release limits requests: 0 up to 0.5.9, 1 up to 0.5.13, 2 from 0.5.14."""
    padding: int
    """Number of rows of the position table in addition to one per request."""
    more: int
    """Number of additional rows for requests that a decode server is receiving (disaggregation)."""


def slot_settings(plan: Plan, context: int) -> SlotSettings:
    """Return the slot settings of a plan. Raises UnknownValueError."""
    limit = plan.value("max_running_requests")
    era = 2 if plan.in_versions(">=0.5.14") else 1 if plan.in_versions(">=0.5.10") else 0
    padded = plan.in_versions(">=0.5.12") or plan.in_versions("<0.4.7")
    decodes = plan.value("disaggregation_mode") == "decode"
    running = None if limit is None else int(limit)
    return SlotSettings(
        running,
        attention_ranks(plan),
        int(plan.in_versions(">=0.5.23")),
        context,
        _extra(plan),
        era,
        int(padded),
        2 * running if decodes and running is not None and running <= 32 else 0,
    )


def _extra(plan: Plan) -> int:
    """Return `SlotSettings.extra`. See `get_req_to_token_extra_context_len` (0.5.16
    allocation_sizing.py, 0.5.13 mem_cache/common.py:194, 0.5.1 model_runner.py:1249)."""
    drafts = number(plan, "speculative_num_draft_tokens", 0) if plan.algorithm else 0
    if plan.in_versions("<0.5.1"):
        return 4
    extra = 4 + drafts
    page = number(plan, "page_size")
    if plan.in_versions("<0.5.13") or page == 1 or plan.algorithm is None:
        return extra
    steps = number(plan, "speculative_num_steps")
    topk = number(plan, "speculative_eagle_topk")
    if topk == 1:
        if plan.in_versions("<0.5.16"):
            return extra
        each = max(steps, drafts)
    else:
        pages = (page - 1 + steps + page - 1) // page
        each = max(pages * page * topk, drafts)
    return max(extra, 2 * each + (page - 1 if plan.in_versions(">=0.5.16") else 0))


def running_requests(settings: SlotSettings, tokens: int, profiled: int, states: States) -> int:
    """Return the final `max_running_requests` of one attention rank.

    `profiled`: tokens before the user's limit is applied. See 0.5.23 kv_cache_configurator.py:3119,
    0.5.10 model_runner_kv_cache_mixin.py:840, 0.5.9 :341 with tp_worker.py, 0.4.6 tp_worker.py:119.
    """
    limit = (
        None
        if settings.explicit is None
        else max(settings.fewest, settings.explicit // settings.ranks)
    )
    if settings.era == 0:
        slots = _estimated(settings, profiled) if settings.explicit is None else settings.explicit
        return min(tokens // 2 if limit is None else limit, states.cap(slots) + settings.padding)
    estimated = _estimated(settings, tokens)
    if limit is None:
        requests = min(estimated, tokens // 2)
    elif settings.era == 1:
        requests = min(limit, estimated)
    else:
        requests = min(limit, tokens // 2)
    return states.cap(requests)


def slot_bytes(settings: SlotSettings, running: int, profiled: int) -> int:
    """Return the bytes of the position table, which has one row of context length per request."""
    rows = running
    if settings.era == 0:
        rows = _estimated(settings, profiled) if settings.explicit is None else settings.explicit
    rows += settings.padding + settings.more
    return rows * (settings.context + settings.extra) * _INDEX_BYTES


def _estimated(settings: SlotSettings, tokens: int) -> int:
    return max(min(int(tokens / settings.context * 512), _MOST), _FEWEST)


class PoolSettings(Struct, frozen=True):
    """Settings that determine the pool's size for an amount of memory."""

    cell: int
    """Bytes per token in the engine's budget."""
    layout: PoolLayout
    draft_token: int
    page: int
    most: int | None
    """`max_total_tokens`; None if not set."""
    slots: SlotSettings
    states: StateSettings | None
    split: int | None
    """Multiple to which tokens are rounded down when they are split between full and window layers:
    1 up to 0.5.6, the page size up to 0.5.10. These releases first count tokens as if every layer
    held every token. None for later releases, in which each layer counts only the tokens that it
    holds."""
    headroom: int
    """Tokens per running request that the engine adds to the pool for drafts (up to 0.5.6), without
    deducting them from its budget. 0 if it adds none."""
    window: int | None
    """The sliding window in tokens, if the engine rejects a pool that is too small for it (0.5.16
    and later); else None."""


class Pool(Struct, frozen=True):
    """The KV pool that fits in an amount of memory."""

    tokens: int
    """`max_total_num_tokens`: tokens in the layers that hold every token."""
    window_tokens: int
    profiled: int
    """Tokens that fit in memory, before `max_total_tokens` limits them."""
    running: int
    states: States
    target_bytes: int
    draft_bytes: int
    slot_bytes: int


def draft_headroom(plan: Plan) -> int:
    """Return the `headroom` in tokens per request; 0 from 0.5.7 on, and for drafts other than
    EAGLE's (0.5.6 model_runner.py:1700, 0.4.6 model_runner.py:866)."""
    if plan.in_versions(">=0.5.7") or plan.algorithm not in EAGLE_FAMILY:
        return 0
    steps = number(plan, "speculative_num_steps")
    tree = steps * number(plan, "speculative_eagle_topk")
    return tree + number(plan, "speculative_num_draft_tokens")


def pool(settings: PoolSettings, rest: float) -> Pool:
    """Return the pool that fits in `rest` bytes.

    If nothing fits, `tokens` is 0. If no state fits, `states.slots` is 0 or less.
    """
    states = States() if settings.states is None else room(settings.states, rest)
    profiled = int(rest - states.bytes) // settings.cell
    tokens = profiled
    if settings.headroom:  # the result may be negative
        running = settings.slots.explicit or _estimated(settings.slots, tokens)
        tokens += running * settings.headroom + 100
        profiled = tokens
    if settings.most is not None:
        tokens = min(tokens, settings.most)
    tokens = max(0, tokens // settings.page * settings.page)
    tokens, window_tokens = _split(settings, tokens)
    running = running_requests(settings.slots, tokens, profiled, states)
    return Pool(
        tokens,
        window_tokens,
        profiled,
        running,
        states,
        _bytes(settings, tokens, settings.layout.full_token_bytes)
        + _bytes(settings, window_tokens, settings.layout.swa_token_bytes),
        _bytes(settings, tokens, settings.draft_token),
        slot_bytes(settings.slots, running, profiled) if tokens else 0,
    )


def _split(settings: PoolSettings, tokens: int) -> tuple[int, int]:
    """Return the numbers of tokens in full layers and in sliding-window layers."""
    layout, step = settings.layout, settings.split or settings.page
    ratio = layout.swa_full_tokens_ratio
    if not layout.swa_layers or ratio is None:
        return tokens, 0
    if not layout.full_layers:
        return tokens, tokens
    if settings.split is not None:
        token_bytes = layout.full_token_bytes + layout.swa_token_bytes
        per_token = layout.full_token_bytes + ratio * layout.swa_token_bytes
        exactly = int(tokens * token_bytes / per_token)
        return exactly // step * step, int(exactly * ratio) // step * step
    return tokens, int(tokens * ratio) // step * step


def _bytes(settings: PoolSettings, tokens: int, each: int) -> int:
    """Return a buffer's bytes, `each` per token, with the extra page that absorbs padding."""
    return (tokens + settings.page) * each if tokens > 0 else 0
