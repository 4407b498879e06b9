"""JSON of `speclaunch watch`, a stable contract for scripts, and the problems in it.

`docs/reference/watch.schema.json` is generated from these records; a test compares them. Within
version 1 keys are never removed or redefined; new keys may be added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct, field

from speclaunch.measure.watch.history import EngineHistory, RankSpan

START_CHECK, LOCK = "start check", "lock: "
"""Sources of acceptance lengths: a launch's first generation, and the prefix for lock entries."""
SINGLE_PROMPT = (START_CHECK, f"{LOCK}smoke")
"""Sources that used a single prompt, which predicts little about other prompts."""
ProblemKind = Literal[
    "unreachable",
    "acceptance dropped",
    "acceptance far below",
    "nothing accepted",
    "nothing verified",
    "graphs off",
    "ranks apart",
    "retractions",
    "kv cache full",
    "stuck",
    "unhealthy workers",
]
SourceName = Literal["metrics", "server_info", "log", "router", "none"]


class WatchProblem(Struct, frozen=True):
    """Something that is wrong."""

    kind: ProblemKind
    text: str


class WatchBaseline(Struct, frozen=True):
    """An acceptance length to compare with, and its source."""

    source: str
    """`journal`, `learned`, `lock: bench NAME`, `lock: prove NAME`, `bench NAME`, `start check`,
    `lock: smoke` or `published`."""
    accept_length: float


class WatchEvent(Struct, frozen=True):
    """An event of a serving engine."""

    at: str
    text: str


class WatchedEngine(Struct, kw_only=True):
    """One server at one time."""

    name: str
    url: str
    role: str = "engine"
    """`engine`, `prefill`, `decode` or `router`."""
    source: SourceName = "none"
    """Source of the values."""
    is_reachable: bool = False
    is_starting: bool = False
    """True if the server does not answer because its launch is starting the engine."""
    version: str | None = None
    model: str | None = None
    algorithm: str | None = None
    speculation_share: float | None = None
    """Share of the generated tokens that the draft proposed."""
    verifications_5m: int | None = None
    """Verification steps of the requests that finished in the last five minutes."""
    is_lifetime: bool = False
    """True if acceptance lengths are means since the start of the engine."""
    total: RankSpan | None = None
    """Values of all ranks together."""
    ranks: list[RankSpan] = field(default_factory=list)
    workers: int | None = None
    workers_healthy: int | None = None
    """Healthy servers behind a router."""
    restarts: int = 0
    """Engine restarts observed while watching."""
    baselines: list[WatchBaseline] = field(default_factory=list)
    problems: list[WatchProblem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    events: list[WatchEvent] = field(default_factory=list)


class WatchDocument(Struct, kw_only=True):
    """All watched servers at one time."""

    version: Literal[1] = 1
    at: str
    engines: list[WatchedEngine]


_FAR_BELOW = 0.6
"""Ratio to a baseline's accepted drafts below which a single reading is a problem."""
_NOTHING_ACCEPTED = 1.02
_APART = 0.7
"""Ratio to the best rank's accepted drafts below which a rank is an outlier."""
_LEAST_DECODE_STEPS = 40
_LEAST_TOKENS = 100
_FULL = 0.98
_STUCK_SECONDS = 60.0
_GRAPHS_OFF = ("disable_cuda_graph", "disable_decode_cuda_graph")
"""Arguments that disable all graphs, or only decode graphs (0.5.16 server_args.py)."""


def problems(
    engine: WatchedEngine, history: EngineHistory, info: Mapping[str, Any], drop: str = ""
) -> Iterator[WatchProblem]:
    """Yield the problems of a reachable engine. `drop`: acceptance drop in its journal."""
    total = engine.total
    if total is None:
        return
    length = total.accept_length_5m or total.accept_length
    if engine.algorithm and engine.role != "prefill":
        yield from _of_acceptance(engine, history, length, drop)
    off = any(info.get(name) for name in _GRAPHS_OFF) or info.get("device") == "cpu"
    steps, share = total.decode_steps, total.graph_share
    if share is not None and share < 0.5 and steps >= _LEAST_DECODE_STEPS and not off:
        text = f"{1 - share:.0%} of {steps:,} decode steps ran without CUDA graphs"
        yield WatchProblem("graphs off", text)
    if total.retracted_5m:
        text = f"{total.retracted_5m:,} requests were retracted: the KV cache is too small for them"
        yield WatchProblem("retractions", text)
    if (total.kv_usage or 0) >= _FULL and total.queued:
        text = f"the KV cache is {total.kv_usage:.0%} full and {total.queued:,} requests wait"
        yield WatchProblem("kv cache full", text)
    if history.stuck_seconds >= _STUCK_SECONDS:
        text = f"{total.running:,} running requests, but no step for {history.stuck_seconds:.0f} s"
        yield WatchProblem("stuck", text)


def _of_acceptance(
    engine: WatchedEngine, history: EngineHistory, length: float | None, drop: str
) -> Iterator[WatchProblem]:
    if history.is_low:
        usual = f", usually {history.learned:.2f}" if history.learned else ""
        now = f" to {length:.2f}" if length else ""
        yield WatchProblem("acceptance dropped", f"acceptance length dropped{now}{usual}")
    elif drop:
        yield WatchProblem("acceptance dropped", drop)
    elif length and length > _NOTHING_ACCEPTED:
        known = [item for item in engine.baselines if item.source not in SINGLE_PROMPT]
        low = min(known, key=lambda item: item.accept_length, default=None)
        if low is not None and length - 1 < _FAR_BELOW * (low.accept_length - 1):
            text = f"acceptance length {length:.2f}; {low.source}: {low.accept_length:.2f}"
            yield WatchProblem("acceptance far below", text)
    if length and length <= _NOTHING_ACCEPTED:
        text = "acceptance length 1: no drafted token is accepted, so drafting only costs time"
        yield WatchProblem("nothing accepted", text)
    finished = history.finished
    is_counted = engine.verifications_5m is not None
    if finished and is_counted and finished[0] >= _LEAST_TOKENS and not finished[1]:
        text = f"{finished[0]:,.0f} tokens were generated without a verification step"
        yield WatchProblem("nothing verified", text)
    ranks = [
        (found, item.rank)
        for item in engine.ranks
        if (found := item.accept_length_5m or item.accept_length)
    ]
    if len(ranks) > 1:
        (least, rank), (most, other) = min(ranks), max(ranks)
        if least - 1 < _APART * (most - 1):
            text = f"acceptance length {least:.2f} on rank {rank}, {most:.2f} on rank {other}"
            yield WatchProblem("ranks apart", text)
