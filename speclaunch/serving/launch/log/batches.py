"""Statistics that the engine logs with every n-th decode step (`decode_log_interval`, 40).

Source: managers/scheduler.py 0.4.6 :1202, managers/scheduler_components/metrics_reporter.py 0.5.23
:963. The acceptance length is the mean since the line before, over all requests of the rank.
"""

from __future__ import annotations

import math
import re

from msgspec import Struct

INTERVAL, USUAL_INTERVAL = "decode_log_interval", 40
"""Argument, and its default: decode steps between two lines."""
_LONGEST = 2_000
_RANK = re.compile(r"\[[^\]\n]{0,60}?\b(?P<rank>DP\d{1,4})\b")
"""Data-parallel rank in a line's header: `[2026-11-21 02:16:12 DP0 TP0]`."""
_GRAPHS = ("cuda graph", "cpu graph", "npu graph", "musa graph")


class DecodeBatch(Struct, frozen=True):
    """One line about decode steps. A missing value is None."""

    rank: str
    """`DP0`; empty without data parallelism."""
    running: int
    queued: int
    accept_length: float | None
    accept_rate: float | None
    kv_usage: float | None
    """Used share of the KV cache; the highest of its pools."""
    is_in_graph: bool | None
    tokens_per_second: float | None


def decode_batch(line: str) -> DecodeBatch | None:
    """Return the statistics of a line; None for any other line."""
    header, found, rest = line[:_LONGEST].partition("Decode batch")
    if not found:
        return None
    values = dict(
        part.rpartition(": ")[::2] for part in rest.lstrip(" .,").split(", ") if ": " in part
    )
    rank = _RANK.search(header)
    graph = next((values[name] for name in _GRAPHS if name in values), None)
    usages = [_number(text) for name, text in values.items() if name.endswith("token usage")]
    running, queued = (_number(values.get(f"#{name}-req")) for name in ("running", "queue"))
    length = _number(values.get("accept len"))
    return DecodeBatch(
        rank=rank["rank"] if rank else "",
        running=int(running or 0),
        queued=int(queued or 0),
        accept_length=length or None,
        accept_rate=_number(values.get("accept rate")) if length else None,
        kv_usage=max((usage for usage in usages if usage is not None), default=None),
        is_in_graph=None if graph is None else graph == "True",
        tokens_per_second=_number(values.get("gen throughput (token/s)")),
    )


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value < 1e12 else None
