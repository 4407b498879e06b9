"""Log messages of the engine about the progress of a start, for releases 0.4.6.post5 to 0.5.23.

This is the only table of them. The phases of a launch (phases.py), the engine's last error
(lines.py) and the diagnosis all read it. At `--log-level warning` the engine prints none of them,
so readiness is queried over HTTP and never read from the log.

Sources: the log statements of the released wheels. Messages by release:
model_executor/model_runner.py (weights, capture up to 0.5.16), mem_cache/memory_pool.py (pool),
model_runner_components/cuda_graph_setup.py (capture from 0.5.17), speculative/eagle_worker*.py
(draft capture), managers/scheduler.py (summary), entrypoints/http_server.py (ready).
"""

from __future__ import annotations

import re
from enum import Enum, StrEnum, auto


class Phase(StrEnum):
    """Current activity of the engine. Users see its value."""

    IMPORTS = "import SGLang"
    SCHEDULER = "start scheduler"
    WEIGHTS = "load target weights"
    DRAFT_WEIGHTS = "load draft weights"
    KV_POOL = "allocate KV cache"
    GRAPHS = "capture CUDA graphs"
    WARM_UP = "warm up"
    READY = "ready"


class LogMark(Enum):
    """Meaning of a log line for the progress of a start."""

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


BATCH = re.compile(r"(?:Decode|Prefill) batch\b")
"""Scheduler's line for every n-th batch: managers/scheduler_metrics_mixin.py, all versions from
0.4.6 to 0.5.23, at `--log-level info`.
"""
DEAD_PROCESS = r"Subprocess (?P<name>\S{1,80}) \(pid=(?P<pid>\d{1,9})\) crashed with exit code "
"""Message about a crashed child from the watchdog in the engine's parent (utils/watchdog.py)."""
PORT_TAKEN = r"\[Errno 98\] (?:error while attempting to bind on address|[Aa]ddress already in use)"
"""Messages of asyncio and the kernel about a port in use. The engine does not exit then (seen on
0.5.23).
"""
AFTERMATH = re.compile(
    # messages of the parent and the siblings of a process that failed
    r"Initialization failed\. Please see the error messages above"
    r"|(?:asyncio\.exceptions\.)?CancelledError"
    r"|cancelled by|Event loop (?:is closed|stopped)"
)
CONSEQUENCES = frozenset(
    {"EOFError", "KeyboardInterrupt", "CancelledError", "BrokenPipeError", "ConnectionResetError"}
)
"""Exceptions that follow a failure and never are its cause (engine.py, watchdog.py of 0.5.23)."""

_GB = r"(?P<{}>-?[\d.]{{1,12}}) GB"
PATTERNS: tuple[tuple[LogMark, re.Pattern[str]], ...] = (
    (LogMark.ARGUMENTS, re.compile(r"server_args=(?:ServerArgs\(|\{)")),
    (
        LogMark.BASELINE,
        re.compile(r"(?:Init torch distributed ends\.|Memory baseline taken\.)"),
    ),
    (
        LogMark.LOAD_BEGIN,
        re.compile(r"Load weight begin\. avail mem=" + _GB.format("avail_gb")),
    ),
    (
        LogMark.LOAD_END,
        re.compile(
            r"Load weight end\. (?:elapsed=[\d.]{1,12} s, )?type=(?P<type>\w{1,200})"
            r"(?:.*?avail mem=" + _GB.format("avail_gb") + r")?"
            r"(?:.*?mem usage=" + _GB.format("used_gb") + r")?"
        ),
    ),
    (
        LogMark.POOL,
        re.compile(
            r"(?:[\w /-]{1,60} )?KV Cache (?:is allocated|VA upper bound)\."
            r".*?#tokens: (?P<tokens>\d{1,15})"
        ),
    ),
    (LogMark.POOL_END, re.compile(r"Memory pool end\. avail mem=" + _GB.format("avail_gb"))),
    (
        LogMark.CAPTURE_BEGIN,
        re.compile(
            r"(?i:Capture (?P<what>[\w -]{0,60}?)(?:cuda|cpu) graph begin)"
            r"(?:.*?avail mem=" + _GB.format("avail_gb") + r")?"
        ),
    ),
    (
        LogMark.CAPTURE_END,
        re.compile(
            r"(?i:Capture (?P<what>[\w -]{0,60}?)(?:cuda|cpu) graph end)"
            r"(?:.*?mem usage=" + _GB.format("used_gb") + r")?"
        ),
    ),
    (
        LogMark.SUMMARY,
        re.compile(
            r"max_total_num_tokens=(?P<tokens>\d{1,15}), .*?"
            r"max_running_requests=(?P<requests>\d{1,9}), context_len=(?P<context_length>\d{1,12})"
            r"(?:, available_(?:gpu|cpu)_mem=" + _GB.format("avail_gb") + r")?"
        ),
    ),
    (
        LogMark.SERVING,
        re.compile(
            r"INFO: +(?:Started server process|Application startup complete|Uvicorn running on)"
        ),
    ),
    (LogMark.READY, re.compile(r"The server is fired up and ready to roll!")),
    (
        LogMark.STOP,
        re.compile(
            r"SIGTERM received\. (?:signum=|Draining)|Gracefully exiting\.\.\. Remaining number"
            r"|INFO: +Shutting down$"
        ),
    ),
    (
        LogMark.DEATH,
        re.compile(
            r"Received sigquit from a child process\. It usually means"
            r"|SIGQUIT received\. signum="
            r"|kill_process_tree called: .*include_parent=True"
            r"|" + DEAD_PROCESS
        ),
    ),
)
_MARK_STARTS = (
    "server_args=", "Init torch", "Memory ", "Load weight", "KV Cache", "Capture ", "max_total_num",
    "INFO:     Started server", "INFO:     Application startup", "INFO:     Uvicorn running",
    "INFO:     Shutting down", "The server is", "SIG", "Gracefully", "Received sig",
    "kill_process", "Subprocess ",
)  # fmt: skip
PHASES = {
    LogMark.ARGUMENTS: Phase.SCHEDULER,
    LogMark.BASELINE: Phase.SCHEDULER,
    LogMark.POOL: Phase.KV_POOL,
    LogMark.POOL_END: Phase.KV_POOL,
    LogMark.CAPTURE_BEGIN: Phase.GRAPHS,
    LogMark.CAPTURE_END: Phase.GRAPHS,
    LogMark.SUMMARY: Phase.WARM_UP,
    LogMark.SERVING: Phase.WARM_UP,
    LogMark.READY: Phase.READY,
}


def may_be_milestone(text: str) -> bool:
    """True if a line may be a milestone."""
    return text.startswith(_MARK_STARTS) or " KV Cache " in text[:80]


def mark_of(text: str) -> tuple[LogMark, re.Match[str]] | None:
    """Return the mark of an engine's line without its header; None for any other line."""
    if may_be_milestone(text):
        for mark, pattern in PATTERNS:
            found = pattern.match(text)
            if found is not None:
                return mark, found
    return None
