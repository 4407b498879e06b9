"""The real engine on the CPU, launched through the command line as a user would."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from speclaunch.engine.facts.cpu_engine import CpuEngine
from speclaunch.serving.launch.runs import free_port

READY_SECONDS = 240


def speclaunch(*words: str, timeout: float = READY_SECONDS) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        command(*words),
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "speclaunch", *words]


class Serving:
    """A launch in the background."""

    def __init__(self, *words: str) -> None:
        self.port = free_port()
        self.lines: list[str] = []
        self.run = ""
        self.process = subprocess.Popen(
            command(*words, f"args.port={self.port}", "--output-format", "json"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            stdin=subprocess.DEVNULL,
        )

    def wait_for(self, text: str) -> None:
        """Read what is said on the way until a line holds `text`."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if text in line:
                return
        raise AssertionError(f"{text!r} was never said: {self.lines}")

    def report(self) -> dict[str, Any]:
        """The JSON document that a ready engine is reported with."""
        assert self.process.stdout is not None
        text = ""
        for line in self.process.stdout:
            text += line
            with contextlib.suppress(json.JSONDecodeError):
                document: dict[str, Any] = json.loads(text)
                return document
        assert self.process.stderr is not None
        raise AssertionError(f"it never served: {self.process.stderr.read()}")

    def generate(self, prompt: str, tokens: int) -> tuple[list[int], dict[str, Any]]:
        answer = httpx.post(
            f"http://127.0.0.1:{self.port}/generate",
            json={
                "text": prompt,
                "sampling_params": {
                    "max_new_tokens": tokens,
                    "temperature": 0,
                    "ignore_eos": True,
                },
            },
            timeout=120,
        )
        answer.raise_for_status()
        data = answer.json()
        return data["output_ids"], data["meta_info"]

    def engine_processes(self) -> list[psutil.Process]:
        """Everything below speclaunch: its guard, the engine, and the engine's own."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait for the end; the exit code."""
        self.process.communicate(timeout=60)
        return self.process.returncode


@contextlib.contextmanager
def serving(*words: str) -> Iterator[Serving]:
    launch = Serving(*words)
    try:
        yield launch
    finally:
        if launch.process.poll() is None:
            launch.send(signal.SIGINT)
            try:
                launch.process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                launch.process.kill()
                launch.process.communicate()


class Marked:
    """Processes that carry a variable of this test: everything that it began, below and apart."""

    name = "SPECLAUNCH_TEST"

    def __init__(self) -> None:
        self.value = uuid.uuid4().hex
        self.env = {**os.environ, self.name: self.value}

    def left(self) -> list[str]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(self.name) == self.value:
                    found.append(" ".join(process.cmdline())[:80])
        return found

    def begin(self, *words: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(command(*words), stdout=pipe, stderr=pipe, text=True, env=self.env)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*words), capture_output=True, text=True, check=False, env=self.env
        )


def survivors(processes: list[psutil.Process], seconds: float) -> list[str]:
    """What of `processes` still runs after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        left = []
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.status() != psutil.STATUS_ZOMBIE:
                    left.append(" ".join(process.cmdline())[:120])
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.2)


@pytest.fixture
def first_home(cpu_engine: CpuEngine, tmp_path: Path) -> Path:
    """A home as it is when the engine was just installed: no tiny model, nothing measured, no
    launch; the installed engine itself is shared."""
    home = tmp_path / "home"
    root = CpuEngine(home).root
    root.mkdir(parents=True)
    for shared in (cpu_engine.venv, cpu_engine.cache, cpu_engine.manifest):
        (root / shared.name).symlink_to(shared)
    return home


@pytest.fixture
def marked(first_home: Path) -> Marked:
    """In a home of its own."""
    found = Marked()
    found.env["SPECLAUNCH_HOME"] = str(first_home)
    return found


@pytest.fixture(autouse=True)
def _engine(cpu_engine: object) -> None:
    """Every test here needs the CPU engine."""
    assert os.name == "posix"
