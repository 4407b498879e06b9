"""Recovery and diagnosis on the real engine: it serves, or it says why."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from speclaunch.serving.launch.runs import free_port

from .conftest import serving, speclaunch, survivors

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

PATIENCE = 600


def story(stderr_or_stdout: str) -> dict[str, Any]:
    """The journal beside the log that a launch named."""
    line = next(line for line in stderr_or_stdout.splitlines() if "log: " in line)
    log = Path(line.rsplit("log: ", 1)[1].strip())
    document: dict[str, Any] = json.loads((log.parent / "journal.json").read_text())
    return document


def causes(journal: dict[str, Any]) -> list[str | None]:
    return [
        one["diagnosis"]["cause"]["name"]
        if one["diagnosis"] and one["diagnosis"]["cause"]
        else None
        for one in journal["attempts"]
    ]


def test_too_small_a_fraction_is_raised_until_it_serves() -> None:
    words = ["recipe=cpu_ngram", "recovery=default", "--smoke", f"args.port={free_port()}"]
    small = ["args.mem_fraction_static=0.01", "args.max_total_tokens=null"]
    # The floor and the limit of the fraction are for GPUs; a laptop has other use for its memory.
    floors = [
        "recovery.floors.mem_fraction_static=0.005",
        "recovery.limits.mem_fraction_static=0.4",
    ]
    done = speclaunch(*words, *small, *floors, "--fresh", "--force", timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    journal = story(done.stderr)
    first, *_, last = journal["attempts"]
    assert causes(journal)[0] == "weights-exceed-fraction"
    assert "Loaded weights leave no GPU memory" in first["diagnosis"]["line"]
    assert not first["changes"] and last["changes"]["mem_fraction_static"] > 0.01
    assert last["verification"]["generation"]["verify_count"] > 0
    assert len(journal["attempts"]) <= 3
    assert [step["phase"] for step in last["milestones"]][-1] == "ready"
    fraction = last["changes"]["mem_fraction_static"]
    assert journal["served"]["overrides"] == [f"++args.mem_fraction_static={fraction}"]
    assert journal["ending"]["result"] == "stopped" and journal["ending"]["exit_code"] == 0

    again = speclaunch(*words, *small, *floors, timeout=PATIENCE)
    assert "starting with the last known good settings" in again.stderr
    assert again.returncode == 0 and len(story(again.stderr)["attempts"]) == 1


@pytest.mark.parametrize(
    ("overrides", "cause", "line"),
    [
        (["args.dtype=int3"], None, "invalid choice"),
        (["args.model_path=/nonexistent/model"], "model-not-found", "Repo id must be"),
        (["args.speculative_algorithm=FOO"], None, "Unknown speculative algorithm name: FOO"),
    ],
)
def test_what_memory_does_not_explain_is_named_and_takes_no_rung(
    overrides: list[str], cause: str | None, line: str
) -> None:
    words = ["recipe=cpu_ngram", "recovery=default", *overrides, f"args.port={free_port()}"]
    done = speclaunch(*words, "--force", timeout=PATIENCE)
    if done.returncode == 2:  # our own reading of the arguments knows it, --force or not
        assert line in done.stderr
        return
    assert done.returncode == 1
    journal = story(done.stderr)
    (attempt,) = journal["attempts"]
    assert attempt["rung"] is None
    assert line in attempt["reason"]
    assert attempt["diagnosis"]["cause"] is not None, attempt["reason"]
    assert not attempt["diagnosis"]["cause"]["memory"]
    assert "cause: " in done.stderr and "help: " in done.stderr
    if cause is not None:
        assert attempt["diagnosis"]["cause"]["name"] == cause


def test_a_port_that_is_taken_while_it_starts_is_named() -> None:
    port = free_port()
    taken: list[socket.socket] = []

    def starts() -> bool:
        lines = (one.info["cmdline"] or [] for one in psutil.process_iter(["cmdline"]))
        return any("sglang.launch_server" in line and str(port) in line for line in lines)

    def take() -> None:
        until = time.monotonic() + PATIENCE
        while not starts() and time.monotonic() < until:
            time.sleep(0.2)
        with contextlib.suppress(OSError):
            taken.append(socket.create_server(("127.0.0.1", port)))

    thread = threading.Thread(target=take)
    thread.start()
    done = speclaunch("recipe=cpu_ngram", "recovery=default", f"args.port={port}", timeout=PATIENCE)
    thread.join()
    for one in taken:
        one.close()
    assert done.returncode == 1
    journal = story(done.stderr)
    (attempt,) = journal["attempts"]
    assert f"port {port} was taken" in attempt["reason"]
    assert attempt["rung"] is None


@pytest.mark.parametrize(
    "victim", [pytest.param("scheduler", marks=pytest.mark.core(1)), "detokenizer"]
)
def test_a_process_that_is_killed_is_named_and_no_setting_is_changed(victim: str) -> None:
    with serving("recipe=cpu_standalone", "recovery=default", "launch.restart.policy=never") as one:
        report = one.report()
        processes = one.engine_processes()
        (pid,) = [p.pid for p in processes if f"sglang::{victim}" in " ".join(p.cmdline())]
        psutil.Process(pid).send_signal(signal.SIGKILL)
        one.process.communicate(timeout=150)
        assert one.process.returncode == 1
        assert survivors(processes, seconds=10) == []
    log = Path(report["log"])
    journal = json.loads((log.parent / "journal.json").read_text())
    (attempt,) = journal["attempts"]
    assert attempt["ending"] == "died" and attempt["rung"] is None
    assert victim in attempt["reason"] and "signal 9" in attempt["reason"]
    cause = attempt["diagnosis"]["cause"]
    assert cause is not None and not cause["memory"]


def test_a_failure_that_is_predicted_is_not_run_into() -> None:
    words = ["recipe=cpu_ngram", "recovery=default", "--smoke", f"args.port={free_port()}"]
    words += ["args.mem_fraction_static=0.01", "args.max_total_tokens=null", "--fresh"]
    words += ["recovery.floors.mem_fraction_static=0.005"]
    words += ["recovery.limits.mem_fraction_static=0.4"]
    done = speclaunch(*words, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert "as configured, it is predicted to fail at 'allocate KV cache'" in done.stderr
    (only,) = story(done.stderr)["attempts"]
    assert only["changes"]["mem_fraction_static"] > 0.01
    assert only["rung"]["changes"] == only["changes"]
    words[words.index("recovery=default")] = "recovery=off"
    refused = speclaunch(*words, timeout=PATIENCE)
    assert refused.returncode == 1
    assert "was not started: it is predicted to fail" in refused.stderr


def test_a_pool_that_the_machine_cannot_give_is_lowered_until_it_serves() -> None:
    """The budget cannot know of a limit on address space (`ulimit -v`); the ladder learns it."""
    available = psutil.virtual_memory().available
    if available < 18e9:
        pytest.skip("it takes 18 GB of memory to have too large a pool")
    fraction = round(16e9 / available, 3)  # a pool of about 14 GB
    words = ["recipe=cpu_ngram", "recovery=default", "--fresh", "--smoke"]
    words += [f"args.port={free_port()}", f"args.mem_fraction_static={fraction}"]
    words += ["args.max_total_tokens=null", "recovery.floors.mem_fraction_static=0.02"]
    # kB. The engine needs 6 to 8 GB of it before it has a pool: the first two have no room by
    # gigabytes, the third has.
    limit = 13_000_000
    command = [sys.executable, "-m", "speclaunch", *words]
    done = subprocess.run(
        ["sh", "-c", f'ulimit -v {limit}; exec "$@"', "sh", *command],
        capture_output=True,
        text=True,
        timeout=840,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    journal = story(done.stderr)
    first, *_, last = journal["attempts"]
    assert first["diagnosis"]["cause"]["memory"]
    assert "DefaultCPUAllocator: can't allocate memory" in first["diagnosis"]["line"]
    assert last["changes"]["mem_fraction_static"] < fraction
    assert last["verification"]["generation"]["verify_count"] > 0
    assert len({json.dumps(one["changes"], sort_keys=True) for one in journal["attempts"]}) == len(
        journal["attempts"]
    )
