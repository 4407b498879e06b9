"""The course of a serving engine, drops of its acceptance, and the hook of a user."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from speclaunch.engine.releases.command import RenderedArgs, RenderedArgument
from speclaunch.serving.launch import watchdog
from speclaunch.serving.launch.supervisor import Ending, EngineSpec, supervise
from speclaunch.serving.launch.watchdog import Course, SpeculationMonitor, run_hook
from speclaunch.serving.metrics import RankMetrics, decode_batch
from tests.support.loops import rows

from .conftest import Recorder

STAMP = "[2026-11-27 02:30:57]"
PLAIN = RenderedArgs("0.5.23", (), {})


def values(rank: str, *found: float | None) -> RankMetrics:
    names = ("running", "queued", "accept_length", "accept_rate", "kv_usage", "tokens_per_second")
    return RankMetrics(rank=rank, **dict(zip(names, found, strict=True)))


@rows(
    "line, expected",
    [
        (  # 0.5.23, written by the CPU engine
            f"{STAMP} Decode batch, #running-req: 2, #token: 752, token usage: 0.09, accept len: "
            "3.55, accept rate: 0.85, cpu graph: False, gen throughput (token/s): 326.69, "
            "#queue-req: 4",
            values("", 2, 4, 3.55, 0.85, 0.09, 326.69),
        ),
        (  # 0.5.9, one of several ranks, without speculation
            "[2026-11-27 02:30:57 DP3 TP3] Decode batch [40], #running-req: 1, #full token: 3, full "
            "token usage: 0.10, #swa token: 3, swa token usage: 0.30, cuda graph: True, gen "
            "throughput (token/s): 5.00, #queue-req: 0",
            values("3", 1, 0, None, None, 0.30, 5.0),
        ),
        (  # 0.4.6
            "[2025-05-01 00:00:00] Decode batch. #running-req: 1, #token: 96, token usage: 0.01, "
            "accept len: 2.10, cuda graph: True, gen throughput (token/s): 88.10, #queue-req: 0",
            values("", 1, 0, 2.1, None, 0.01, 88.1),
        ),
        (f"{STAMP} Prefill batch, #new-seq: 1", None),
        (
            "Decode batch, accept len: nan, #running-req: x",
            values("", None, None, None, None, None, None),
        ),
    ],
)
def test_a_line_about_decode_steps(line: str, expected: RankMetrics | None) -> None:
    assert decode_batch(line) == expected


def batch(length: float, rank: str = "") -> str:
    header = f"{STAMP[:-1]} {rank} TP0]" if rank else STAMP
    return (
        f"{header} Decode batch, #running-req: 1, #token: 752, token usage: 0.09, accept len: "
        f"{length:.2f}, accept rate: 0.85, cuda graph: True, gen throughput (token/s): 100.0, "
        "#queue-req: 0"
    )


def trained(rendered: RenderedArgs = PLAIN) -> SpeculationMonitor:
    monitor = SpeculationMonitor()
    monitor.begin(rendered, {})
    for number in range(40):
        lines = [batch(3 + number % 3 / 20), batch(3, "DP1")]
        assert monitor.read(lines, float(number)) == []
    return monitor


def test_a_rank_that_drops_is_named() -> None:
    monitor = trained()
    found = [
        pair for second in range(9) for pair in monitor.read([batch(1.5, "DP1")], 40.0 + second)
    ]
    assert [(rank, change.is_drop) for rank, change in found] == [("1", True)]
    assert monitor.document()["baselines"].keys() == {"", "1"}


def test_the_baseline_survives_a_restart_but_not_other_settings() -> None:
    monitor = trained()
    monitor.begin(PLAIN, {})
    assert any(monitor.read([batch(1.5)], float(second)) for second in range(9))
    monitor = trained()
    monitor.begin(PLAIN, {"speculative_num_steps": 1})
    assert not any(monitor.read([batch(1.5)], float(second)) for second in range(20))


def test_adaptive_speculation_is_not_tested() -> None:
    argument = RenderedArgument("speculative_adaptive", "--speculative-adaptive", ())
    monitor = trained(RenderedArgs("0.5.23", (argument,), {}))
    assert not any(monitor.read([batch(1.0)], float(second)) for second in range(99))


def test_a_course_of_any_length_has_few_points() -> None:
    course = Course()
    line = decode_batch(batch(2.0))
    assert line is not None
    for second in (0, 3, 7, 500, 900, 86_400):
        course.add(second, line, 40)
    found = course.document()
    assert 60 <= len(found["accept_length"]) <= 120
    assert found["seconds"] * len(found["accept_length"]) >= 86_400
    assert set(found["accept_length"]) == {2.0, None}
    assert set(found["tokens_per_second"]) == {100.0, None}


def program(folder: Path, text: str) -> Path:
    found = folder / "a program; with spaces"
    found.write_text(f"#!/bin/sh\n{text}\n")
    found.chmod(found.stat().st_mode | stat.S_IXUSR)
    return found


def ran(hook: Path, log: Path) -> str:
    facts = {"event": "acceptance dropped", "baseline": 3.0}
    run_hook(hook, facts, log).join(10)
    return log.read_text()


@pytest.mark.thorough
def test_a_hook_gets_the_facts_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    told = ran(program(tmp_path, 'env; echo "args: $#"; cat'), tmp_path / "log")
    assert "SPECLAUNCH_EVENT=acceptance dropped\n" in told and "args: 0\n" in told
    assert "SPECLAUNCH_BASELINE=3.0\n" in told
    assert "secret" not in told and os.environ["HF_TOKEN"]


@pytest.mark.thorough
def test_a_hook_that_hangs_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "HOOK_SECONDS", 0.3)
    began = time.monotonic()
    told = ran(program(tmp_path, "sleep 60 & sleep 60"), tmp_path / "log")
    assert "killed after 0.3 s" in told and time.monotonic() - began < 8


def test_a_hook_that_cannot_run_is_noted(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("no program")
    assert "Permission denied" in ran(tmp_path / "x", tmp_path / "log")


@pytest.mark.thorough
def test_an_engine_is_stopped_if_that_is_requested(order: Callable[..., EngineSpec]) -> None:
    from msgspec.structs import replace

    recorder = Recorder()
    outcome = supervise(replace(order("serve"), degraded=lambda: "it dropped"), recorder)
    assert (outcome.ending, outcome.reason) == (Ending.DEGRADED, "it dropped")
    assert recorder.stops == ["it dropped"]
