"""What a change costs, and why it helps, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speclaunch.plan.budget import Budget
from speclaunch.plan.fit.knobs import FRACTION, STEPS, TOKENS, TOPK
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.plan.resolution.graphs import captured_sizes
from speclaunch.plan.topics.graphs import MOST, SIZES


def cost(before: Plan, after: Plan, was: Budget | None, now: Budget | None) -> str:
    """What is lost on the way from one plan to the other; budgets where they are known."""
    lost = [
        _running(before, after),
        _tokens(was, now) if now is not None else _unknown_tokens(before, after),
        _whole(now),
        _depth(before, after),
        _graphs(before, after),
        _chunk(before, after),
    ]
    return "; ".join(text for text in lost if text) or "no cost compared to the recipe"


def say(name: str, value: Any) -> str:
    """A setting as it is written."""
    return f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"


def say_all(changes: Mapping[str, Any]) -> str:
    """Settings as they are written, one after the other."""
    return ", ".join(say(name, value) for name, value in changes.items())


def _running(before: Plan, after: Plan) -> str | None:
    was, now = (
        before.value_or_none("max_running_requests"),
        after.value_or_none("max_running_requests"),
    )
    if was is None or now is None or now >= was:
        return None
    return f"{was} → {now} running requests"


def _tokens(was: Budget | None, now: Budget | None) -> str | None:
    if now is None or now.tokens is None:
        return None
    if was is None or not was.tokens:
        return f"{now.tokens:,} KV tokens are left"
    if now.tokens >= was.tokens:
        return None
    share = 100 * (1 - now.tokens / was.tokens)
    return f"{was.tokens:,} → {now.tokens:,} KV tokens (-{share:.0f} %)"


def _unknown_tokens(before: Plan, after: Plan) -> str | None:
    was, now = before.value_or_none(FRACTION), after.value_or_none(FRACTION)
    if now is None or was == now or (was is not None and now >= was):
        return None
    return "a smaller KV cache (by an unknown amount)"


def _whole(now: Budget | None) -> str | None:
    if now is None or now.requests_at_context is None or now.requests_at_context >= 1:
        return None
    return f"no request of {now.context_length:,} tokens has room"


def _depth(before: Plan, after: Plan) -> str | None:
    was, now = (
        tuple(plan.value_or_none(name) for name in (STEPS, TOPK, TOKENS))
        for plan in (before, after)
    )
    if was == now or None in now:
        return None
    tokens = f"{was[2]} → {now[2]} draft tokens"
    return f"{tokens} (steps / topk {was[0]} / {was[1]} → {now[0]} / {now[1]})"


def _graphs(before: Plan, after: Plan) -> str | None:
    was, now = largest_graph(before), largest_graph(after)
    if was is None or now is None or now >= was:
        return None
    running = after.value_or_none("max_running_requests")
    if running is not None and now >= running:
        return None  # the list ends where the requests do
    return f"batches of more than {now} requests run without CUDA graphs (before: {was})"


def largest_graph(plan: Plan) -> int | None:
    """Return the largest batch that has a CUDA graph; None if there is none, or it is unknown."""
    try:
        return max(captured_sizes(plan), default=None)
    except UnknownValueError:
        return None


def _chunk(before: Plan, after: Plan) -> str | None:
    name = "chunked_prefill_size"
    was, now = before.value_or_none(name), after.value_or_none(name)
    if was is None or now is None or was == now:
        return None
    return f"prompts are prefilled in chunks of {now:,} tokens instead of {was:,}"


WHY = {
    FRACTION: "divides the memory between the KV cache and what graphs and activations need",
    MOST: "fewer and smaller CUDA graphs",
    SIZES: "fewer and smaller CUDA graphs",
    STEPS: "a smaller draft tree",
    TOPK: "a smaller draft tree",
    TOKENS: "fewer draft tokens to verify for each request",
    "max_running_requests": "fewer concurrent requests, with smaller graphs and buffers",
    "chunked_prefill_size": "smaller activations during prefill",
    "max_total_tokens": "a smaller KV cache",
}
