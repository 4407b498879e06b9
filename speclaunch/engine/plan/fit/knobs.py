"""Settings that free memory, and the lower values to try for each.

A step maps server arguments, by the newest engine's names, to new values. Steps obey the engine's
constraints:

- A chain (topk 1) verifies one more token than it has steps.
- An explicit list of graph sizes may only shrink.
- Chunks are complete pages.
- Data-parallel ranks divide requests and chunk tokens among themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speclaunch.engine.plan.fit.limits import FitFloors, Steppable
from speclaunch.engine.plan.plan import Plan, UnknownValueError
from speclaunch.engine.plan.resolution.graphs import captured_sizes
from speclaunch.engine.plan.topics.algorithms import EAGLE_FAMILY
from speclaunch.engine.plan.topics.graphs import MOST, SIZES, decode_is_captured
from speclaunch.engine.plan.topics.parallel import attention_ranks

FRACTION = "mem_fraction_static"
STEPS, TOPK, TOKENS = (
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
)
Step = Mapping[str, Any]

_CHAIN = 3
"""Steps of the chain that the documentation recommends instead of a tree (`3 / 1 / 4`)."""
_LEAST_NGRAM_TOKENS = 4
_UNCHUNKED = 8192
"""The first chunk to try if prompts are not chunked (`chunked_prefill_size: -1`)."""


_TREE = frozenset({STEPS, TOPK, TOKENS})
_GRAPHS = frozenset({MOST, SIZES})


def arguments(knob: Steppable) -> frozenset[str]:
    """Return the server arguments that a setting consists of."""
    if knob is Steppable.TREE:
        return _TREE
    return _GRAPHS if knob is Steppable.GRAPHS else frozenset({knob.value})


def steps_down(plan: Plan, knob: Steppable, floors: FitFloors) -> tuple[Step, ...]:
    """Return the values below the plan's, from the mildest to the floor.

    Empty if the setting has no effect, is unknown, or must not change.
    """
    makers = {
        Steppable.GRAPHS: _graphs,
        Steppable.TREE: _tree,
        Steppable.RUNNING: _running,
        Steppable.CHUNK: _chunk,
        Steppable.POOL: _pool,
    }
    try:
        return makers[knob](plan, floors) if knob in makers else ()
    except UnknownValueError:
        return ()


def halves(value: int, least: int) -> list[int]:
    """Return half of `value`, a quarter, and so on down to `least`."""
    found = []
    while value // 2 > least:
        value //= 2
        found.append(value)
    return [*found, least] if value > least else found


def graphs_can_shrink(plan: Plan) -> bool:
    """True if decode uses CUDA graphs whose sizes depend on server arguments."""
    return decode_is_captured(plan) and not plan.value("cuda_graph_config")


def _graphs(plan: Plan, floors: FitFloors) -> tuple[Step, ...]:
    if not graphs_can_shrink(plan):
        return ()
    sizes = captured_sizes(plan)
    if not sizes:
        return ()
    explicit = plan.user_value(SIZES)
    found: list[Step] = []
    for most in halves(max(sizes), floors.cuda_graph_max_bs_decode):
        if explicit is None:
            found.append({MOST: most})
            continue
        remaining = [size for size in explicit if size <= most] or [min(explicit)]
        if remaining != explicit and (not found or found[-1][SIZES] != remaining):
            found.append({SIZES: remaining})
    return tuple(found)


def _tree(plan: Plan, floors: FitFloors) -> tuple[Step, ...]:
    algorithm = plan.algorithm
    tokens = plan.value(TOKENS)
    if tokens is None:
        return ()
    if algorithm == "NGRAM":
        return tuple({TOKENS: size} for size in halves(int(tokens), _LEAST_NGRAM_TOKENS))
    if algorithm not in EAGLE_FAMILY:
        return ()  # the draft determines the block size
    steps, topk = plan.value(STEPS), plan.value(TOPK)
    tied = plan.value("speculative_adaptive") or plan.value("enable_multi_layer_eagle")
    if steps is None or topk is None or tied:
        return ()
    found: list[Step] = []
    if topk > 1:
        chain = min(_CHAIN, steps)
        for size in halves(int(tokens), chain + 1)[:-1]:
            if size > steps:
                found.append({STEPS: steps, TOPK: topk, TOKENS: size})
        found.append(_chain(max(chain, floors.speculative_num_steps)))
        steps = chain
    elif steps > _CHAIN:
        found.append(_chain(max(_CHAIN, floors.speculative_num_steps)))
    if floors.speculative_num_steps < min(steps, _CHAIN):
        found.append(_chain(floors.speculative_num_steps))
    return tuple(found)


def _chain(steps: int) -> Step:
    return {STEPS: steps, TOPK: 1, TOKENS: steps + 1}


def _running(plan: Plan, floors: FitFloors) -> tuple[Step, ...]:
    running = plan.value("max_running_requests")
    if running is None:
        return ()
    ranks = max(1, attention_ranks(plan))
    least = max(floors.max_running_requests, ranks)
    return tuple({"max_running_requests": number} for number in halves(int(running), least))


def _chunk(plan: Plan, floors: FitFloors) -> tuple[Step, ...]:
    name = "chunked_prefill_size"
    chunk = plan.value(name)
    if chunk is None:
        return ()
    page = int(plan.value("page_size") or 1)
    ranks = max(1, attention_ranks(plan))  # the engine divides the chunk among them
    total = int(chunk) if int(chunk) > 0 else 2 * _UNCHUNKED
    sizes = halves(total, floors.chunked_prefill_size)
    return tuple({name: size * ranks} for size in sizes if size % page == 0)


def _pool(plan: Plan, floors: FitFloors) -> tuple[Step, ...]:
    """Return lower limits for the pool if the user set a limit. speclaunch never adds one."""
    name = "max_total_tokens"
    total = plan.user_value(name)
    if total is None:
        return ()
    context = int(plan.value("context_length") or floors.max_total_tokens)
    least = max(floors.max_total_tokens, min(context, int(total)))
    page = int(plan.value("page_size") or 1)
    return tuple({name: size} for size in halves(int(total), least) if size % page == 0)
