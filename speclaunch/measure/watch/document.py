"""JSON of `speclaunch watch`: a stable contract for scripts.

`docs/reference/watch.schema.json` is generated from these records; a test compares them. Within
version 1 keys are never removed or redefined; new keys may be added.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from speclaunch.measure.watch.history import RankSpan

START_CHECK = "start check"
"""Source of the acceptance length of a launch's first generation: a single prompt."""
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
    """`journal`, `learned`, `bench NAME`, `start check` or `published`."""
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
    """All ranks together."""
    ranks: list[RankSpan] = field(default_factory=list)
    workers: int | None = None
    workers_healthy: int | None = None
    """Servers behind a router."""
    restarts: int = 0
    """Starts of the engine that were seen while watching."""
    baselines: list[WatchBaseline] = field(default_factory=list)
    problems: list[WatchProblem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    events: list[WatchEvent] = field(default_factory=list)


class WatchDocument(Struct, kw_only=True):
    """All watched servers at one time."""

    version: Literal[1] = 1
    at: str
    engines: list[WatchedEngine]
