"""Statistics that the engine logs with every n-th decode step (`decode_log_interval`, 40).

Source: managers/scheduler.py 0.4.6 :1202, managers/scheduler_components/metrics_reporter.py 0.5.23
:963. The acceptance length is the mean since the line before, over all requests of the rank.
"""

from __future__ import annotations

import math
import re

from speclaunch.serving.metrics.engine_metrics import RankMetrics

INTERVAL, USUAL_INTERVAL = "decode_log_interval", 40
"""Argument, and its default: decode steps between two lines."""
_LONGEST = 2_000
_RANK = re.compile(r"\[[^\]\n]{0,60}?\bDP(?P<rank>\d{1,4})\b")
"""Data-parallel rank in a line's header, 0 here: `[2026-11-21 02:16:12 DP0 TP0]`."""


def decode_batch(line: str) -> RankMetrics | None:
    """Return the values in a line; None for any other line."""
    header, found, rest = line[:_LONGEST].partition("Decode batch")
    if not found:
        return None
    values = dict(
        part.rpartition(": ")[::2] for part in rest.lstrip(" .,").split(", ") if ": " in part
    )
    rank = _RANK.search(header)
    usages = [_number(text) for name, text in values.items() if name.endswith("token usage")]
    running, queued = (_number(values.get(f"#{name}-req")) for name in ("running", "queue"))
    length = _number(values.get("accept len"))
    return RankMetrics(
        rank=rank["rank"] if rank else "",
        running=running,
        queued=queued,
        accept_length=length or None,
        accept_rate=_number(values.get("accept rate")) if length else None,
        kv_usage=max((usage for usage in usages if usage is not None), default=None),
        tokens_per_second=_number(values.get("gen throughput (token/s)")),
    )


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value < 1e12 else None
