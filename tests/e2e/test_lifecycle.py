"""Starts that fail, and ends of every kind: the real engine, real signals, nothing left."""

from __future__ import annotations

import json
import signal
import socket
import time
from pathlib import Path

import psutil
import pytest

from speclaunch.serving.launch.runs import free_port

from .conftest import serving, speclaunch, survivors

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

PHASES = ["import SGLang", "start scheduler", "load target weights", "warm up", "ready"]


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        pytest.param(
            ["args.model_path=/nonexistent/model"],
            "OSError: Repo id must be in the form",
            marks=pytest.mark.core(1),
        ),
        (
            ["+args.dp_size=2", "+args.tp_size=2", "+args.enable_dp_attention=true"],
            "ValueError: Currently ngram speculative decoding does not support dp attention.",
        ),
        (["args.speculative_algorithm=FOO"], "Unknown speculative algorithm name: FOO"),
    ],
)
def test_a_failed_start_says_the_engines_own_last_word(overrides: list[str], reason: str) -> None:
    words = ["recipe=cpu_ngram", *overrides, f"args.port={free_port()}"]
    done = speclaunch(*words, "--force")  # the rules know two of them beforehand
    assert done.returncode == 1
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
    log = Path(done.stderr.rsplit("log: ", 1)[1].strip())
    assert reason in log.read_text()


@pytest.mark.core(0)
def test_what_the_rules_know_does_not_start() -> None:
    done = speclaunch("recipe=cpu_ngram", "args.speculative_algorithm=FOO")
    assert done.returncode == 1
    assert "error[SPL101]" in done.stderr
    assert "engine started" not in done.stderr


@pytest.mark.core(0)
def test_a_busy_port_is_refused_before_anything_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = speclaunch("recipe=cpu_ngram", f"args.port={server.getsockname()[1]}")
    assert done.returncode == 1
    assert "cannot listen on" in done.stderr and "held by" in done.stderr
    assert "engine started" not in done.stderr


@pytest.mark.core(1)
@pytest.mark.campaign
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_engine_is_left_ten_seconds_after(number: signal.Signals, phase: str) -> None:
    with serving("recipe=cpu_standalone") as launch:
        launch.wait_for(phase)
        time.sleep(1 if phase == "import SGLang" else 0)
        processes = launch.engine_processes()
        assert processes
        launch.send(number)
        assert survivors(processes, seconds=10) == []
        code = launch.end()
    if number is signal.SIGKILL:
        assert code == -signal.SIGKILL
    else:
        assert code == 130 or (number is signal.SIGTERM and phase == "ready" and code in (0, 130))


@pytest.mark.core(1)
def test_a_detached_engine_is_listed_followed_and_stopped() -> None:
    port = free_port()
    begun = speclaunch("recipe=cpu_ngram", f"args.port={port}", "--detach", timeout=600)
    assert begun.returncode == 0, begun.stderr
    name = begun.stdout.split("speclaunch stop ")[1].split()[0]
    try:
        (one,) = [
            run
            for run in json.loads(speclaunch("ps", "--output-format", "json").stdout)["runs"]
            if run["name"] == name
        ]
        processes = psutil.Process(one["pid"]).children(recursive=True)
        assert processes
        second = speclaunch("recipe=cpu_ngram", f"args.port={port}")
        assert second.returncode == 1
        assert f"cpu_ngram, process {one['pid']}" in second.stderr
        assert "fired up and ready to roll" in speclaunch("logs", name).stdout
    finally:
        stopped = speclaunch("stop", name)
    assert stopped.returncode == 0
    assert survivors(processes, seconds=5) == []
    told = speclaunch("runs", "show", name, "--output-format", "json")
    ending = json.loads(told.stdout)["ending"]
    assert (ending["result"], ending["exit_code"]) == ("stopped", 0)


def test_a_hang_behind_a_healthy_health_is_found_and_ended() -> None:
    """The scheduler is stopped: `/health` of 0.5.23 still answers, generation does not."""
    quick = ["interval_seconds=2", "timeout_seconds=3", "failures=2"]
    words = [f"launch.watchdog.{one}" for one in quick]
    with serving("recipe=cpu_ngram", "recovery=off", *words) as launch:
        launch.report()
        processes = launch.engine_processes()
        (scheduler,) = [p for p in processes if "sglang::scheduler" in " ".join(p.cmdline())]
        scheduler.suspend()
        _, said = launch.process.communicate(timeout=120)
        assert launch.process.returncode == 1
        assert "no longer generates" in said and "is stopped" in said
        assert survivors(processes, seconds=10) == []
