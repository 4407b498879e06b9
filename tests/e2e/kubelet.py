"""A scripted kubelet: one container, its startup, readiness and liveness probes, its restarts.

What it does is what the kubelet does (Kubernetes, "Configure Liveness, Readiness and Startup
Probes"): until the startup probe has succeeded once, the others wait; so many failures of it, or of
the liveness probe, in a row end the container (SIGTERM, SIGKILL after the grace time) and start it
again; readiness says only whether requests come.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx


@dataclass
class Kubelet:
    """`probes` are the fields of a container as they are rendered; `pace` divides the periods of
    readiness and liveness, and `grace` stands for the grace time: nothing else is scaled."""

    command: Callable[[int], tuple[Sequence[str], Mapping[str, str]]]
    """From the number of the start to what is run, with its environment."""
    probes: Mapping[str, Any]
    log: str
    pace: float = 1.0
    grace: float = 5.0
    restarts: int = 0
    ready: bool = False
    started: float = 0.0
    readied: float | None = None
    failures: dict[str, int] = field(default_factory=dict)
    """How many probes of each kind failed in all, until they are counted anew."""
    asked: dict[str, int] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Kubelet:
        self._start()
        self._threads = [threading.Thread(target=self._run, daemon=True)]
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._kill()
        for thread in self._threads:
            thread.join(60)

    def wait(self, what: Callable[[], bool], seconds: float) -> float:
        """Seconds until something is so. Raises AssertionError when it is not in time."""
        begun = time.monotonic()
        while not what():
            assert time.monotonic() - begun < seconds, f"not within {seconds} s: {self}"
            time.sleep(0.1)
        return time.monotonic() - begun

    def count_anew(self) -> None:
        self.failures, self.asked = {}, {}

    def _start(self) -> None:
        words, env = self.command(self.restarts)
        with open(self.log, "ab") as log:  # noqa: PTH123
            self.process = subprocess.Popen(
                words, env=dict(env), stdout=log, stderr=log, start_new_session=True
            )
        self.started, self.readied, self.ready = time.monotonic(), None, False

    def _run(self) -> None:
        while not self._stop.is_set():
            if self._until("startupProbe", success=True):
                readiness = threading.Event()
                beside = threading.Thread(target=self._readiness, args=(readiness,), daemon=True)
                beside.start()
                self._until("livenessProbe", success=False)
                readiness.set()
                beside.join(60)
            if self._stop.is_set():
                return
            self.ready = False
            self._end()
            self.restarts += 1
            self._start()

    def _until(self, kind: str, *, success: bool) -> bool:
        """Probe until it succeeds (or, without `success`, until it failed too often): whether it
        did not fail too often."""
        in_a_row = 0
        while not self._stop.is_set():
            if self._asks(kind):
                in_a_row = 0
                if success:
                    return True
            else:
                in_a_row += 1
                if in_a_row >= self.probes[kind]["failureThreshold"]:
                    return False
            pace = 1.0 if success else self.pace  # a start takes as long as it takes
            self._stop.wait(self.probes[kind]["periodSeconds"] / pace)
        return True

    def _readiness(self, over: threading.Event) -> None:
        in_a_row = 0
        while not over.is_set():
            if self._asks("readinessProbe"):
                in_a_row, self.ready = 0, True
                self.readied = self.readied or time.monotonic()
            else:
                in_a_row += 1
                self.ready &= in_a_row < self.probes["readinessProbe"]["failureThreshold"]
            over.wait(self.probes["readinessProbe"]["periodSeconds"] / self.pace)

    def _asks(self, kind: str) -> bool:
        """One probe, as it is rendered."""
        probe = self.probes[kind]
        url = f"http://127.0.0.1:{probe['httpGet']['port']}{probe['httpGet']['path']}"
        self.asked[kind] = self.asked.get(kind, 0) + 1
        try:
            good = 200 <= httpx.get(url, timeout=probe["timeoutSeconds"]).status_code < 400
        except httpx.HTTPError:
            good = False
        if not good:
            self.failures[kind] = self.failures.get(kind, 0) + 1
        return good

    def _end(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(self.grace)
        self._kill()

    def _kill(self) -> None:
        """What is left of the container."""
        assert self.process is not None
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.process.wait(30)
