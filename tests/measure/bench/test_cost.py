"""What a side costs, as engines tell it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from speclaunch.measure.bench.certificate import ENGINE, FILE, RESIDENT, cost_of, read, write
from speclaunch.measure.bench.schema import SideMemory
from tests.support.loops import rows


def cost(side: str, tokens: int | None, size: int | None, measured: str | None) -> SideMemory:
    return SideMemory(side=side, max_total_num_tokens=tokens, bytes=size, bytes_measured=measured)


USAGE = {"weight": 15.0, "kvcache": 40.5, "token_capacity": 61440}
GRAPHS = {"decode": 0.25, "target_verify": 0.25, "prefill": 0.0}


@rows(
    "states, gib",
    [
        ([{"memory_usage": {**USAGE, "graph": GRAPHS}}], 56.0),  # 0.5.23
        ([{"memory_usage": {**USAGE, "graph": 0.5}}], 56.0),
        ({"memory_usage": USAGE}, 55.5),
        ([{"memory_usage": USAGE}, {"memory_usage": USAGE}], 111.0),
    ],
)
def test_what_an_engine_on_a_gpu_tells(states: object, gib: float) -> None:
    info = {"device": "cuda", "internal_states": states}
    assert cost_of("R", info, os.getpid()) == cost("R", 61440, round(gib * (1 << 30)), ENGINE)


def test_tokens_are_those_of_the_scheduler() -> None:
    info = {"max_total_num_tokens": 65536, "internal_states": [{"memory_usage": USAGE}]}
    assert cost_of("R", info, None).max_total_num_tokens == 65536


@pytest.mark.parametrize("info", [{}, {"internal_states": None}, {"internal_states": [7, {}]}])
def test_an_engine_that_tells_nothing(info: dict[str, object]) -> None:
    assert cost_of("R", info, None) == cost("R", None, None, None)


def test_on_a_cpu_the_memory_of_its_processes_counts() -> None:
    found = cost_of(
        "R", {"device": "cpu", "internal_states": [{"memory_usage": USAGE}]}, os.getpid()
    )
    assert found.bytes_measured == RESIDENT
    assert found.bytes is not None
    assert (4 << 20) < found.bytes < (8 << 30)


def test_costs_are_kept_by_side(tmp_path: Path) -> None:
    assert read(tmp_path) == ()
    first, second = cost("R", 10, None, None), cost("plain", 12, 5, RESIDENT)
    write(tmp_path, [first])
    write(tmp_path, [second])
    newer = cost("R", 11, None, None)
    write(tmp_path, [newer])
    assert read(tmp_path) == (newer, second)


def test_costs_that_an_earlier_version_kept_are_read(tmp_path: Path) -> None:
    old = {"side": "R", "tokens": 10, "bytes": 5, "measured": RESIDENT}
    (tmp_path / FILE).write_text(json.dumps({"memory": [old]}))
    assert read(tmp_path) == (cost("R", 10, 5, RESIDENT),)
