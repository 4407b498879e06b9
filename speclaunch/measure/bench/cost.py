"""Memory use of a side, reported by its engine or, on a CPU, by the system."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil
from msgspec import to_builtins

from speclaunch.core import InputError, Problem, read_json, write_json
from speclaunch.measure.bench.schema import SideMemory, memory_of

FILE = "memory.json"
ENGINE, RESIDENT = "engine", "resident"


def cost_of(side: str, info: Mapping[str, Any], pid: int | None) -> SideMemory:
    """Return the memory that `/server_info` reports for a side.

    `pid`: local engine process, if any. On a CPU, its resident memory is used instead.
    """
    resident = _resident(pid) if info.get("device") == "cpu" and pid is not None else None
    size = resident if resident is not None else _engine_bytes(info)
    measured = RESIDENT if resident is not None else ENGINE if size is not None else None
    return SideMemory(
        side=side, max_total_num_tokens=_tokens(info), bytes=size, bytes_measured=measured
    )


def _states(info: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the state of each data-parallel rank; older releases report a single object."""
    states = info.get("internal_states")
    found = states if isinstance(states, list) else [states]
    return [entry for entry in found if isinstance(entry, dict)]


def _usage(info: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the memory usage of each rank.

    Source: 0.5.23 managers/scheduler_components/memory_usage.py `build_memory_usage`.
    """
    found = (state.get("memory_usage") for state in _states(info))
    return [entry for entry in found if isinstance(entry, dict)]


def _tokens(info: Mapping[str, Any]) -> int | None:
    """Return the KV cache tokens of one rank, as the engine logs them.

    Source: 0.5.23 managers/scheduler.py `get_init_info`.
    """
    sizes = [
        info.get("max_total_num_tokens"),
        *(usage.get("token_capacity") for usage in _usage(info)),
    ]
    return next((size for size in sizes if isinstance(size, int) and size > 0), None)


def _engine_bytes(info: Mapping[str, Any]) -> int | None:
    """Return the total bytes of the ranks that report memory (in GiB).

    Older releases report one number for graphs, or none.
    """
    total = 0.0
    for usage in _usage(info):
        graph = usage.get("graph")
        parts = [usage.get("weight"), usage.get("kvcache")]
        parts += graph.values() if isinstance(graph, dict) else [graph]
        total += sum(part for part in parts if isinstance(part, int | float))
    return round(total * (1 << 30)) or None


def _resident(pid: int) -> int | None:
    """Return the memory of a process and its descendants; shared memory counts once (PSS)."""
    total = 0
    with contextlib.suppress(psutil.Error):
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                full = process.memory_full_info()
                total += int(getattr(full, "pss", 0) or full.rss)
    return total or None


def write(folder: Path, costs: Iterable[SideMemory]) -> None:
    """Write the costs next to the rounds. Raises InputError."""
    by_side = {usage.side: usage for usage in (*read(folder), *costs)}
    document = to_builtins(tuple(by_side.values()))
    try:
        write_json(folder / FILE, {"memory": document})
    except OSError as error:
        raise InputError(Problem(f"cannot write {folder / FILE}: {error.strerror}")) from error


def read(folder: Path) -> tuple[SideMemory, ...]:
    """Return the stored costs."""
    return memory_of(read_json(folder / FILE) or {})
