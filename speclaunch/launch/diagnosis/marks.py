"""The milestones of a start as the engine logs them, over all releases 0.4.6.post5 to 0.5.23.

Sources: the log statements of the released wheels. Which release says it how:
model_executor/model_runner.py (weights, capture up to 0.5.16), mem_cache/memory_pool.py (pool),
model_runner_components/cuda_graph_setup.py (capture from 0.5.17), speculative/eagle_worker*.py
(draft capture), managers/scheduler.py (summary), entrypoints/http_server.py (ready).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, auto

from speclaunch.launch.phases import Phase


class Mark(Enum):
    """What a line of the log says about the course of a start."""

    ARGUMENTS = auto()
    BASELINE = auto()
    LOAD_BEGIN = auto()
    LOAD_END = auto()
    POOL = auto()
    POOL_END = auto()
    CAPTURE_BEGIN = auto()
    CAPTURE_END = auto()
    SUMMARY = auto()
    SERVING = auto()
    READY = auto()
    BATCH = auto()
    STOP = auto()
    DEATH = auto()


_GB = r"(?P<{}>-?[\d.]{{1,12}}) GB"
PATTERNS: tuple[tuple[Mark, re.Pattern[str]], ...] = (
    (Mark.ARGUMENTS, re.compile(r"server_args=(?:ServerArgs\(|\{)")),
    (
        Mark.BASELINE,
        re.compile(r"(?:Init torch distributed ends\.|Memory baseline taken\.)"),
    ),
    (
        Mark.LOAD_BEGIN,
        re.compile(r"Load weight begin\. avail mem=" + _GB.format("avail_gb")),
    ),
    (
        Mark.LOAD_END,
        re.compile(
            r"Load weight end\. (?:elapsed=[\d.]{1,12} s, )?type=(?P<type>\w{1,200})"
            r"(?:.*?avail mem=" + _GB.format("avail_gb") + r")?"
            r"(?:.*?mem usage=" + _GB.format("used_gb") + r")?"
        ),
    ),
    (
        Mark.POOL,
        re.compile(
            r"(?:[\w /-]{1,60} )?KV Cache (?:is allocated|VA upper bound)\."
            r".*?#tokens: (?P<tokens>\d{1,15})"
        ),
    ),
    (Mark.POOL_END, re.compile(r"Memory pool end\. avail mem=" + _GB.format("avail_gb"))),
    (
        Mark.CAPTURE_BEGIN,
        re.compile(
            r"(?i:Capture (?P<what>[\w -]{0,60}?)(?:cuda|cpu) graph begin)"
            r"(?:.*?avail mem=" + _GB.format("avail_gb") + r")?"
        ),
    ),
    (
        Mark.CAPTURE_END,
        re.compile(
            r"(?i:Capture (?P<what>[\w -]{0,60}?)(?:cuda|cpu) graph end)"
            r"(?:.*?mem usage=" + _GB.format("used_gb") + r")?"
        ),
    ),
    (
        Mark.SUMMARY,
        re.compile(
            r"max_total_num_tokens=(?P<tokens>\d{1,15}), .*?"
            r"max_running_requests=(?P<requests>\d{1,9}), context_len=(?P<context_length>\d{1,12})"
            r"(?:, available_(?:gpu|cpu)_mem=" + _GB.format("avail_gb") + r")?"
        ),
    ),
    (
        Mark.SERVING,
        re.compile(
            r"INFO: +(?:Started server process|Application startup complete|Uvicorn running on)"
        ),
    ),
    (Mark.READY, re.compile(r"The server is fired up and ready to roll!")),
    (
        Mark.STOP,
        re.compile(
            r"SIGTERM received\. (?:signum=|Draining)|Gracefully exiting\.\.\. Remaining number"
            r"|INFO: +Shutting down$"
        ),
    ),
    (
        Mark.DEATH,
        re.compile(
            r"Received sigquit from a child process\. It usually means"
            r"|SIGQUIT received\. signum="
            r"|kill_process_tree called: .*include_parent=True"
            r"|Subprocess \S{1,80} \(pid=\d{1,9}\) crashed with exit code"
        ),
    ),
)
PHASES = {
    Mark.ARGUMENTS: Phase.SCHEDULER,
    Mark.BASELINE: Phase.SCHEDULER,
    Mark.POOL: Phase.KV_POOL,
    Mark.POOL_END: Phase.KV_POOL,
    Mark.CAPTURE_BEGIN: Phase.GRAPHS,
    Mark.CAPTURE_END: Phase.GRAPHS,
    Mark.SUMMARY: Phase.WARM_UP,
    Mark.SERVING: Phase.WARM_UP,
    Mark.READY: Phase.READY,
}


@dataclass(slots=True)
class Course:
    """How far one rank has come."""

    seen: set[Mark] = field(default_factory=set)
    loads: int = 0
    """How many loads of weights began."""
    last: Mark | None = None
    pooled_before_load: bool = False
    """The last load of weights began after a pool had been allocated: the order of releases up to
    0.5.13, where the draft is paid from what the fraction leaves."""
    phase: Phase = Phase.IMPORTS

    def take(self, mark: Mark) -> None:
        """Take in a milestone of this rank."""
        if mark is Mark.LOAD_BEGIN:
            self.loads += 1
            self.pooled_before_load = bool(self.seen & {Mark.POOL, Mark.POOL_END})
        if mark in (Mark.LOAD_BEGIN, Mark.LOAD_END):
            self.phase = Phase.WEIGHTS if self.loads < 2 else Phase.DRAFT_WEIGHTS
        elif mark in PHASES and not (self.phase is Phase.READY and mark is not Mark.READY):
            self.phase = PHASES[mark]
        self.seen.add(mark)
        self.last = mark
