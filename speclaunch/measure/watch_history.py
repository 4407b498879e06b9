"""History of a watched engine, its problems, and the JSON of `speclaunch watch`.

The history has current and five-minute values, corrected for known pitfalls of the metrics. A gauge
changes every 40 decode steps and keeps its value while the engine is idle. A falling counter means
that the engine has restarted, which begins a new history.

The JSON is a stable contract for scripts. `docs/reference/watch.schema.json` is generated from
these records; a test compares them. Within version 1, keys are never removed or redefined; new keys
may be added.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from statistics import fmean
from typing import Any, Literal

from msgspec import Struct, field

from speclaunch.serving import (
    USUAL_INTERVAL,
    AcceptanceChange,
    AcceptanceSample,
    AcceptanceTest,
    EngineMetrics,
    RankMetrics,
)

SPAN_SECONDS = 300.0
STALE_SECONDS = 30.0
"""Time without a decode step after which a gauge is stale."""
_MOST_READINGS = 400


class RankSpan(Struct, kw_only=True):
    """Values of one rank, or of all ranks together: now, and over the history."""

    rank: str
    accept_length: float | None = None
    accept_rate: float | None = None
    accept_length_5m: float | None = None
    running: int | None = None
    queued: int | None = None
    retracted_5m: int | None = None
    kv_usage: float | None = None
    steps: int | None = None
    draft_tokens: int | None = None
    tokens_per_second: float | None = None
    graph_share: float | None = None
    """Share of counted decode steps in CUDA graphs, 0 to 1; None if none were counted."""
    decode_steps: int = 0
    """Decode steps over the history; 0 if the release does not count them."""


class _Rank(Struct):
    """Metrics of one rank since the engine's last start."""

    readings: deque[tuple[float, RankMetrics]] = field(
        default_factory=lambda: deque(maxlen=_MOST_READINGS)
    )
    lengths: deque[tuple[float, float, float]] = field(
        default_factory=lambda: deque(maxlen=_MOST_READINGS)
    )
    """Time, acceptance length and verification steps at each change of the gauge."""
    pending: float = 0.0
    """Verification steps since the last change of the gauge."""
    decoded_at: float = 0.0
    """Time of the last decode step; initially the time of the first metrics."""
    test: AcceptanceTest = field(default_factory=AcceptanceTest)

    def add(self, at: float, new: RankMetrics, *, is_mean: bool) -> AcceptanceChange | None:
        before = self.readings[-1][1] if self.readings else None
        if before is None:
            self.decoded_at = at
        self.readings.append((at, new))
        while self.readings[0][0] < at - SPAN_SECONDS:
            self.readings.popleft()
        while self.lengths and self.lengths[0][0] < at - SPAN_SECONDS:
            self.lengths.popleft()
        if before is None or is_mean or not _has_moved(before, new):
            return None
        self.decoded_at = at
        steps = USUAL_INTERVAL * max(1.0, min(new.running or 1.0, before.running or 1.0))
        length = new.accept_length or 0.0
        if length < 1:
            return None
        self.pending += (_gain(before, new, "decoded") or 0.0) / length
        if length == before.accept_length and self.pending < steps:
            return None  # the same value may be a new one, but not before these steps
        self.pending = 0.0
        self.lengths.append((at, length, steps))
        return self.test.add(AcceptanceSample(length, steps))

    def span(self, rank: str, *, is_lifetime: bool) -> RankSpan:
        (_, first), (at, last) = self.readings[0], self.readings[-1]
        is_current = is_lifetime or at - self.decoded_at < STALE_SECONDS
        graphs = _gain(first, last, "graph_passes") or 0.0
        passes = graphs + (_gain(first, last, "other_passes") or 0.0)
        retracted, weight = _gain(first, last, "retracted"), sum(item[2] for item in self.lengths)
        return RankSpan(
            rank=rank,
            accept_length=last.accept_length or None if is_current else None,
            accept_rate=last.accept_rate if is_current else None,
            accept_length_5m=(
                sum(length * steps for _, length, steps in self.lengths) / weight
                if weight
                else None
            ),
            running=rounded(last.running),
            queued=rounded(last.queued),
            retracted_5m=rounded(retracted),
            kv_usage=last.kv_usage,
            steps=rounded(last.steps) or None,
            draft_tokens=rounded(last.draft_tokens) or None,
            tokens_per_second=self._speed(is_current=is_current),
            graph_share=graphs / passes if passes else None,
            decode_steps=round(passes),
        )

    def _speed(self, *, is_current: bool) -> float | None:
        """Return tokens per second: by the counter, else the gauge (None if absent, 0 if stale)."""
        at, last = self.readings[-1]
        since, first = next(item for item in self.readings if item[0] >= at - STALE_SECONDS)
        gained = _gain(first, last, "decoded")
        if gained is not None and at > since:
            return gained / (at - since)
        return last.tokens_per_second if is_current else 0.0


class EngineHistory:
    """History of one engine. Metrics must be added in time order."""

    def __init__(self) -> None:
        self.restarts = 0
        self._ranks: dict[str, _Rank] = {}
        self._engine: deque[tuple[float, EngineMetrics]] = deque(maxlen=_MOST_READINGS)

    def add(self, at: float, metrics: EngineMetrics) -> list[tuple[str, AcceptanceChange]]:
        """Add metrics read at `at` (monotonic); return new acceptance changes with their ranks."""
        if self._engine and _has_restarted(self._engine[-1][1], metrics):
            self.restarts += 1
            self._engine.clear()
            for known in self._ranks.values():
                known.test.restart()
            self._ranks = {rank: _Rank(test=known.test) for rank, known in self._ranks.items()}
        self._engine.append((at, metrics))
        while self._engine[0][0] < at - SPAN_SECONDS:
            self._engine.popleft()
        names = {item.rank for item in metrics.ranks}
        self._ranks = {rank: known for rank, known in self._ranks.items() if rank in names}
        found = []
        for item in metrics.ranks:
            known = self._ranks.setdefault(item.rank, _Rank())
            change = known.add(at, item, is_mean=metrics.is_lifetime)
            if change is not None:
                found.append((item.rank, change))
        return found

    @property
    def learned(self) -> float | None:
        """Usual acceptance length learned from the history; None while the history is too short."""
        found = [known for item in self._ranks.values() if (known := item.test.baseline)]
        steps = sum(item.steps for item in found)
        return sum(item.length * item.steps for item in found) / steps if found else None

    @property
    def is_low(self) -> bool:
        return any(item.test.is_low for item in self._ranks.values())

    @property
    def finished(self) -> tuple[float, float] | None:
        """Decoded tokens and verification steps of finished requests; None if unknown.

        The first token of a request comes from its prefill, without a verification.
        """
        if len(self._engine) < 2:
            return None
        first, last = self._engine[0][1], self._engine[-1][1]
        tokens, steps, requests = (
            _gain(first, last, name) for name in ("generated", "verifications", "requests")
        )
        return None if tokens is None else (tokens - (requests or 0.0), steps or 0.0)

    @property
    def stuck_seconds(self) -> float:
        """Seconds for which running requests have made no progress."""
        if not self._engine:
            return 0.0
        now, last = self._engine[-1]
        same = takewhile(lambda item: _is_same(item[1], last), reversed(self._engine))
        return now - min((at for at, _ in same), default=now)

    def ranks(self) -> list[RankSpan]:
        is_lifetime = bool(self._engine) and self._engine[-1][1].is_lifetime
        return [known.span(rank, is_lifetime=is_lifetime) for rank, known in self._ranks.items()]

    def total(self) -> RankSpan | None:
        """Return the values of all ranks together; None if no rank has metrics."""
        spans = self.ranks()
        if not spans:
            return None
        total = RankSpan(rank="", steps=spans[0].steps, draft_tokens=spans[0].draft_tokens)
        for name, together in _TOGETHER.items():
            known = [value for span in spans if (value := getattr(span, name)) is not None]
            if known:
                setattr(total, name, together(known))
        graphs = sum((span.graph_share or 0.0) * span.decode_steps for span in spans)
        total.graph_share = graphs / total.decode_steps if total.decode_steps else None
        return total


_TOGETHER: Mapping[str, Callable[[Sequence[float]], float]] = {
    **dict.fromkeys(("accept_length", "accept_rate", "accept_length_5m"), fmean),
    **dict.fromkeys(("running", "queued", "retracted_5m", "tokens_per_second"), sum),
    "decode_steps": sum,
    "kv_usage": max,
}
"""Functions that combine the ranks' values, by field of `RankSpan`."""


def rounded(value: float | None) -> int | None:
    """Return the nearest integer; None if the value is None."""
    return None if value is None else round(value)


def _gain(first: object, last: object, name: str) -> float | None:
    """Return the growth of a counter, from 0 if `first` lacks it; None if `last` lacks it."""
    after = getattr(last, name)
    if after is None:
        return None
    gained: float = after - (getattr(first, name) or 0.0)
    return gained


_OF_RANK = ("decoded", "graph_passes", "other_passes", "retracted")
_OF_ENGINE = ("generated", "verifications", "requests")
_SIGNS = ("decoded", "graph_passes", "other_passes", "accept_length", "tokens_per_second")


def _has_moved(before: RankMetrics, new: RankMetrics) -> bool:
    """True if a rank's counters, or its gauges in releases without counters, show decoding."""
    if new.decoded is not None:
        return new.decoded != before.decoded
    return any(getattr(before, name) != getattr(new, name) for name in _SIGNS)


def _has_restarted(before: EngineMetrics, new: EngineMetrics) -> bool:
    if _fell(before, new, _OF_ENGINE):
        return True
    known = {item.rank: item for item in before.ranks}
    return any(item.rank in known and _fell(known[item.rank], item, _OF_RANK) for item in new.ranks)


def _fell(before: object, new: object, names: Sequence[str]) -> bool:
    return any((getattr(before, name) or 0.0) > (getattr(new, name) or 0.0) for name in names)


def _is_same(item: EngineMetrics, other: EngineMetrics) -> bool:
    """True if both metrics show the same running requests and no step in between."""
    if not any(rank.running for rank in item.ranks) or item.is_lifetime:
        return False
    return item.ranks == other.ranks and all(
        getattr(item, name) == getattr(other, name) for name in _OF_ENGINE
    )


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
    """A problem of a watched server, as text."""

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
    """Source of the values; `none` if the server reports no values."""
    is_reachable: bool = False
    is_starting: bool = False
    """True if the server does not answer because its launch is starting the engine."""
    version: str | None = None
    model: str | None = None
    algorithm: str | None = None
    speculation_share: float | None = None
    """Share of the generated tokens that the draft proposed, 0 to 1; None if unknown."""
    verifications_5m: int | None = None
    """Verification steps of requests that finished in the last 5 minutes; None if unknown."""
    is_lifetime: bool = False
    """True if acceptance lengths are means since the start of the engine."""
    total: RankSpan | None = None
    """Values of all ranks together; None if there are none."""
    ranks: list[RankSpan] = field(default_factory=list)
    workers: int | None = None
    workers_healthy: int | None = None
    """Number of healthy servers behind a router; None for other servers."""
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
"""Ratio of accepted drafts to a baseline's, below which acceptance is a problem."""
_NOTHING_ACCEPTED = 1.02
_APART = 0.7
"""Ratio of accepted drafts to the best rank's, below which a rank is an outlier."""
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
