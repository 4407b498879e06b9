"""Load a supervised engine for a while: what does speclaunch itself cost?

    python -m campaigns load --minutes 20 [recipe=cpu_ngram …]

Reports the CPU time and the memory of speclaunch and its guard over the time, and the throughput
of the same engine with the watchdog on and speclaunch stopped in turn (SIGSTOP), so that both
halves see the same machine: their ratio is the effect of supervision.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

ROOT = Path(__file__).resolve().parent.parent
CLIENTS = 4
TOKENS = 64


@dataclass
class Load:
    """Clients that generate without a pause."""

    url: str
    tokens: int = 0
    errors: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Begin."""
        for number in range(CLIENTS):
            threading.Thread(target=self._client, args=(number,), daemon=True).start()

    def stop(self) -> None:
        """End."""
        self._ended.set()

    def _client(self, number: int) -> None:
        with httpx.Client(base_url=self.url, timeout=120, trust_env=False) as client:
            while not self._ended.is_set():
                body = {
                    "text": f"{number} {self.tokens} the capital of",
                    "sampling_params": {"max_new_tokens": TOKENS, "ignore_eos": True},
                }
                try:
                    client.post("/generate", json=body).raise_for_status()
                    self.tokens += TOKENS
                except httpx.HTTPError:
                    self.errors += 1
                    time.sleep(0.5)


def own(pid: int) -> list[psutil.Process]:
    """speclaunch and its guard."""
    process = psutil.Process(pid)
    return [process, *(c for c in process.children() if "guard.py" in " ".join(c.cmdline()))]


def cpu_seconds(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def memory_mib(processes: list[psutil.Process]) -> float:
    return sum(float(process.memory_info().rss) for process in processes) / (1 << 20)


def measure(pid: int, url: str, minutes: float, slice_seconds: float) -> dict[str, object]:
    """Load for so long, half of the slices with speclaunch stopped."""
    processes = own(pid)
    load = Load(url)
    load.start()
    time.sleep(5)
    rates: dict[bool, list[float]] = {True: [], False: []}
    memory = [memory_mib(processes)]
    cpu, wall = 0.0, 0.0
    deadline = time.monotonic() + minutes * 60
    watched = True
    while time.monotonic() < deadline:
        if not watched:
            os.kill(pid, signal.SIGSTOP)
        tokens, spent, began = load.tokens, cpu_seconds(processes), time.monotonic()
        time.sleep(slice_seconds)
        seconds = time.monotonic() - began
        rates[watched].append((load.tokens - tokens) / seconds)
        if watched:
            cpu += cpu_seconds(processes) - spent
            wall += seconds
            memory.append(memory_mib(processes))
        else:
            os.kill(pid, signal.SIGCONT)
        watched = not watched
    load.stop()
    with_us, without = (statistics.fmean(rates[key]) for key in (True, False))
    return {
        "minutes": minutes,
        "supervisor_cpu_percent": round(100 * cpu / wall, 3),
        "memory_mib_first": round(memory[1], 1),
        "memory_mib_last": round(memory[-1], 1),
        "memory_mib_most": round(max(memory), 1),
        "tokens_per_second_supervised": round(with_us, 1),
        "tokens_per_second_unsupervised": round(without, 1),
        "throughput_ratio": round(with_us / without, 4),
        "slices": [len(rates[True]), len(rates[False])],
        "spread_percent": [
            round(100 * statistics.pstdev(rates[key]) / statistics.fmean(rates[key]), 1)
            for key in (True, False)
        ],
        "request_errors": load.errors,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--slice", type=float, default=15, help="seconds of each half in turn")
    parser.add_argument("words", nargs="*", default=["recipe=cpu_ngram"])
    given = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "speclaunch", *given.words, f"args.port={port}"]
    launch = subprocess.Popen(
        [*command, "--output-format", "json"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        text = ""
        assert launch.stdout is not None
        for line in launch.stdout:
            text += line
            with contextlib.suppress(json.JSONDecodeError):
                json.loads(text)
                break
        else:
            sys.exit("it never served")
        result = measure(launch.pid, f"http://127.0.0.1:{port}", given.minutes, given.slice)
        print(json.dumps(result, indent=1))
    finally:
        launch.send_signal(signal.SIGTERM)
        launch.wait(60)
