"""Starts the real engine on the CPU until its pool stands (or it fails), and reads what it took."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from speclaunch.engine.facts.cpu_engine import CpuEngine

PROBE = Path(__file__).with_name("cpu_probe.py")
_NUMBER = re.compile(r"^(?:MEASURED|PROBE) (?P<what>\w+) (?P<rest>.*)$", re.M)
_SUMMARY = re.compile(
    r"max_total_num_tokens=(?P<tokens>\d+),.*max_running_requests=(?P<running>\d+), "
    r"context_len=(?P<context>\d+)"
)
_ERROR = re.compile(r"^(?P<kind>\w*Error): (?P<text>.+)$", re.M)
_END = re.compile(r"max_total_num_tokens=\d+,|Scheduler hit an exception")


def start(
    engine: CpuEngine, arguments: Sequence[str], port: int, folder: Path, seconds: float = 240
) -> str:
    """The output of an engine that is stopped as soon as it has said enough."""
    probe = folder / "probe"
    probe.mkdir(parents=True, exist_ok=True)
    shutil.copy(PROBE, probe / "sitecustomize.py")
    inherited = os.environ | {"PYTHONPATH": str(probe)}
    log = folder / "engine.log"
    command = [str(engine.python), "-m", "sglang.launch_server", *arguments]
    command += ["--device", "cpu", "--host", "127.0.0.1", "--port", str(port)]
    before = psutil.virtual_memory().available
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=inherited | engine.environment(inherited),
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            cwd=folder,
        )
        deadline = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < deadline:
            if _END.search(log.read_text(errors="replace")):
                time.sleep(1)  # the traceback, or the rest of the line
                break
            time.sleep(0.3)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return f"MEASURED host {before}\n{log.read_text(errors='replace')}"


def extract(log: str) -> dict[str, Any]:
    """What the engine measured and made, as data. Sizes are bytes."""
    found: dict[str, Any] = {"pools": []}
    available: list[int] = []
    for match in _NUMBER.finditer(log):
        what, words = match["what"], match["rest"]
        if what in ("available", "avail"):
            available.append(_bytes(words))
        elif what in ("before", "pre"):
            found["before"] = _bytes(words)
        elif what == "rest":
            found["rest"] = int(words)
        elif what == "host":
            found["host"] = int(words)
        elif what in ("slots", "req"):
            rows, columns = (int(one) for one in re.findall(r"\d+", words)[:2])
            found["slots"] = [rows, columns]
        elif what in ("pool", "kv"):
            numbers = [int(one) for one in re.findall(r"(?<![\w.])\d+", words)]
            dtype = re.search(r"torch\.\w+", words)
            assert dtype is not None
            pool = {"tokens": numbers[0], "bytes": sum(numbers[1:]), "dtype": dtype[0]}
            found["pools"].append(pool)
    if available:
        found["after"] = available[0]
    summary = _SUMMARY.search(log)
    if summary is not None:
        found |= {key: int(value) for key, value in summary.groupdict().items()}
    else:
        errors = [match[0] for match in _ERROR.finditer(log)]
        errors += re.findall(r"error: argument [^\n]+", log)
        found["error"] = errors[0] if errors else "no error was said"
    return found


def _bytes(gib: str) -> int:
    return round(float(gib) * (1 << 30))


def arguments(
    models: Mapping[str, Path], case: Mapping[str, Any], defaults: Mapping[str, Any]
) -> list[str]:
    """A command line of a case; a name of a model stands for its folder."""
    words: list[str] = []
    for name, value in (dict(defaults) | dict(case)).items():
        said = str(models[value]) if name.endswith("model_path") else str(value)
        words += [f"--{name.replace('_', '-')}", said]
    return words
