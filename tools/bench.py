"""speclaunch's own overhead on the real CPU engine, everything measured in one run.

    python tools/bench.py [ROUNDS]

Starts the same engine by hand and through speclaunch in turn, and prints: the time from the
command to the engine's process, readiness against readiness by hand (ratio), and the resident
memory of the supervisor while it serves.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil
from rich.console import Console
from rich.table import Table

from speclaunch.launch.prepare import prepare
from speclaunch.recipe.load import load

RECIPE = "cpu_ngram"
READY_SECONDS = 180
SPAWN_LIMIT_SECONDS = 1.5
READY_LIMIT_RATIO = 1.05
MEMORY_LIMIT_MIB = 80


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def until_ready(port: int, started: float, alive: Callable[[], bool]) -> float:
    """Seconds from `started` until `/health` answers 200, asked ten times a second."""
    with httpx.Client(trust_env=False, timeout=5) as http:
        while time.monotonic() - started < READY_SECONDS and alive():
            try:
                if http.get(f"http://127.0.0.1:{port}/health").status_code == httpx.codes.OK:
                    return time.monotonic() - started
            except httpx.TransportError:
                pass
            time.sleep(0.1)
    raise SystemExit("the engine did not become ready")


def by_hand() -> float:
    """Readiness of the engine started directly, with the same command and environment."""
    port = free_port()
    prepared = prepare(load(RECIPE, [f"args.port={port}"]))
    with tempfile.TemporaryFile() as log:
        started = time.monotonic()
        engine = subprocess.Popen(
            prepared.command(None),
            env=prepared.environment(),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            return until_ready(port, started, lambda: engine.poll() is None)
        finally:
            engine.terminate()
            engine.wait(30)


def through_speclaunch() -> tuple[float, float, float, float]:
    """Spawn and readiness in seconds, resident memory of speclaunch and of its guard in MiB."""
    port = free_port()
    command = [str(Path(sys.executable).with_name("speclaunch")), f"recipe={RECIPE}"]
    started = time.monotonic()
    launch = subprocess.Popen(
        [*command, f"args.port={port}", "--output-format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert launch.stderr is not None and launch.stdout is not None
        line = next(line for line in launch.stderr if "engine started" in line)
        spawned = time.monotonic() - started
        pid = int(line.split("process ")[1].split(")")[0])
        ready = until_ready(port, started, lambda: launch.poll() is None)
        report = ""
        while not report.rstrip().endswith("\n}"):
            report += launch.stdout.readline()
        json.loads(report)
        time.sleep(2)
        guard = psutil.Process(pid).parent()
        assert guard is not None
        sizes = [p.memory_info().rss / 2**20 for p in (psutil.Process(launch.pid), guard)]
        return spawned, ready, sizes[0], sizes[1]
    finally:
        launch.send_signal(signal.SIGINT)
        launch.communicate(timeout=30)


def main() -> int:
    """Measure, print, and exit 1 when a limit is passed."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    by_hand()  # once for the page cache
    hand, ours = [], []
    for _ in range(rounds):
        hand.append(by_hand())
        ours.append(through_speclaunch())
    spawned = statistics.median(run[0] for run in ours)
    ready_hand = statistics.median(hand)
    ready_ours = statistics.median(run[1] for run in ours)
    ratio = ready_ours / ready_hand
    memory = max(run[2] + run[3] for run in ours)
    table = Table("measured", "median", "limit", title=f"{rounds} rounds, {os.cpu_count()} cores")
    table.add_row("command to engine process", f"{spawned:.2f} s", f"{SPAWN_LIMIT_SECONDS} s")
    table.add_row("ready, engine by hand", f"{ready_hand:.2f} s", "")
    table.add_row("ready, through speclaunch", f"{ready_ours:.2f} s", "")
    table.add_row("ratio of the two", f"{ratio:.3f}", f"{READY_LIMIT_RATIO}")
    table.add_row(
        "resident memory while serving",
        f"{memory:.0f} MiB ({max(r[2] for r in ours):.0f} + guard {max(r[3] for r in ours):.0f})",
        f"{MEMORY_LIMIT_MIB} MiB",
    )
    Console().print(table)
    kept = (
        spawned <= SPAWN_LIMIT_SECONDS and ratio <= READY_LIMIT_RATIO and memory <= MEMORY_LIMIT_MIB
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
