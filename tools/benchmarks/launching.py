"""A launch on the real CPU engine: until its process exists, until it serves, and what stays."""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx
import psutil

from benchmarks.ground import PYTHON, SPECLAUNCH, Ground
from benchmarks.rows import Goal, Row
from speclaunch.deployments.recipe.load import load
from speclaunch.deployments.targets.prepare import prepare
from speclaunch.serving.launch.inputs import engine_argv, engine_environment
from speclaunch.serving.launch.runs import free_port

GROUP = "launch"
RECIPE = "cpu_ngram"
READY_SECONDS = 180
SPAWN_GOAL_BESIDE_BEFORE = 0.35
SPAWN_GOAL = 4.7
"""The same where the earlier installation is not at hand: it took 13.5 times as long as the
reference (28fcaa4)."""
READY_GOAL = 1.05
MEMORY_GOAL_MIB = 50
SETTLED_SECONDS = 2
STARTS = 2
"""So many whole starts by hand and through us; each takes the engine some 15 seconds."""


@dataclass(frozen=True, slots=True)
class Launched:
    """What one launch took, in seconds and MiB."""

    spawned: float
    ready: float
    supervisor_mib: float
    guard_mib: float


def measure(ground: Ground, before: str | None = None) -> Iterator[Row]:
    """To the process by `ground.rounds` launches, to readiness and its memory by fewer.

    `before` is the `speclaunch` of an earlier installation, to be compared with in the same run.
    """
    _spawned(SPECLAUNCH)
    spawned, typer, earlier = [], [], []
    for _ in range(ground.rounds):
        spawned.append(_spawned(SPECLAUNCH))
        typer.append(_timed([PYTHON, "-c", "import typer"]))
        if before:
            earlier.append(_spawned(before))
    work, reference = "`recipe=` to engine process", '`python -c "import typer"`'
    ours, theirs = statistics.median(spawned), statistics.median(typer)
    yield Row(GROUP, work, reference, ours, theirs, goal=SPAWN_GOAL)
    if earlier:
        theirs, goal = statistics.median(earlier), SPAWN_GOAL_BESIDE_BEFORE
        yield Row(GROUP, work, "an earlier installation", ours, theirs, goal=goal)
    by_hand, through = [], []
    for _ in range(min(STARTS, ground.rounds)):
        by_hand.append(_by_hand())
        through.append(_through_speclaunch())
    yield Row(
        GROUP,
        "ready to serve",
        "the engine by hand",
        statistics.median(one.ready for one in through),
        statistics.median(by_hand),
        goal=READY_GOAL,
    )
    supervisor = max(one.supervisor_mib for one in through)
    guard = max(one.guard_mib for one in through)
    what = f"supervisor {supervisor:.0f} MiB, guard {guard:.0f} MiB"
    yield Row(
        GROUP,
        "memory while it serves",
        what,
        supervisor + guard,
        None,
        Goal.SIZE,
        MEMORY_GOAL_MIB,
    )


def _timed(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return time.perf_counter() - began


def _launch(speclaunch: str, port: int, *, output: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [speclaunch, f"recipe={RECIPE}", f"args.port={port}", "--output-format", "json"],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
    )


def _started(launch: subprocess.Popen[str]) -> int:
    """The engine's process id, as soon as it is told."""
    assert launch.stderr is not None
    line = next(line for line in launch.stderr if "engine started" in line)
    return int(line.split("process ")[1].split(")")[0])


def _end(launch: subprocess.Popen[str]) -> None:
    launch.send_signal(signal.SIGINT)
    launch.communicate(timeout=60)


def _spawned(speclaunch: str) -> float:
    """Seconds until the engine's process exists; it is ended at once."""
    began = time.perf_counter()
    launch = _launch(speclaunch, free_port(), output=subprocess.DEVNULL)
    try:
        _started(launch)
        return time.perf_counter() - began
    finally:
        _end(launch)


def _until_ready(port: int, began: float, alive: Callable[[], bool]) -> float:
    """Seconds from `began` until `/health` answers 200, asked ten times a second."""
    with httpx.Client(trust_env=False, timeout=5) as http:
        while time.perf_counter() - began < READY_SECONDS and alive():
            try:
                if http.get(f"http://127.0.0.1:{port}/health").status_code == httpx.codes.OK:
                    return time.perf_counter() - began
            except httpx.TransportError:
                pass
            time.sleep(0.1)
    raise SystemExit("the engine did not become ready")


def _by_hand() -> float:
    """Readiness of the engine started directly, with the same command and environment."""
    port = free_port()
    prepared = prepare(load(RECIPE, [f"args.port={port}"]))
    with tempfile.TemporaryFile() as log:
        began = time.perf_counter()
        engine = subprocess.Popen(
            engine_argv(prepared, None),
            env=engine_environment(prepared),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            return _until_ready(port, began, lambda: engine.poll() is None)
        finally:
            engine.terminate()
            engine.wait(30)


def _through_speclaunch() -> Launched:
    """The same through speclaunch, and what it and its guard have while the engine serves."""
    port = free_port()
    began = time.perf_counter()
    launch = _launch(SPECLAUNCH, port, output=subprocess.PIPE)
    try:
        pid = _started(launch)
        spawned = time.perf_counter() - began
        ready = _until_ready(port, began, lambda: launch.poll() is None)
        report = ""
        assert launch.stdout is not None
        while not report.rstrip().endswith("\n}"):
            report += launch.stdout.readline()
        json.loads(report)
        time.sleep(SETTLED_SECONDS)
        guard = psutil.Process(pid).parent()
        assert guard is not None
        sizes = [p.memory_info().rss / 2**20 for p in (psutil.Process(launch.pid), guard)]
        return Launched(spawned, ready, sizes[0], sizes[1])
    finally:
        _end(launch)
