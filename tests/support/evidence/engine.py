"""Start the real engine on the CPU as a user does, ask it something, and read how far it came."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx

from speclaunch.engine.facts.cpu_engine import MODEL_MODULES, CpuEngine, disabled_models
from speclaunch.serving.cpu_engine.programs import engine_environment

SECONDS = 200
"""For a start; a request has 60."""
LOG = "engine.log"
FORK_SERVER = Path(__file__).with_name("fork_server.py")
READY = "The server is fired up and ready to roll!"
DIED = "Scheduler hit an exception"
PHASES = (
    "validation",
    "server startup",
    "scheduler startup",
    "target loading",
    "target setup",
    "draft loading",
    "draft setup",
    "warm-up",
    "first request",
    "later requests",
    "serves",
)
PROMPT = "the quick brown fox jumps over the lazy dog the quick brown fox "
_ERROR = re.compile(
    r"^(?P<kind>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit))(?:: (?P<text>.*))?$"
)
_FRAME = re.compile(r'^\s*File "(?:.*/)?(sglang/[^"]+)", line (\d+), in (\S+)$')
_USAGE = re.compile(r"^\S*launch_server\S*: error: (?P<text>.*)$")
_STAMP = re.compile(r"^\[[\d :.-]+\] ")
_MATTERS = re.compile(
    r"Load weight (begin|end)|KV Cache is allocated|fired up|hit an exception|warmup error"
    r"|WARNING|[Ww]arning: (Target|User)|not (found|support|initiali)|mismatch|override|overrid"
)
_NOISE = re.compile(
    r"UserWarning|SPECULATIVE_MOE|FastAPIDeprecation|awq|gguf|Deprecat|token IDs|server_args="
)
_MEMORY = re.compile(r"(elapsed|avail mem|mem usage)=-?[\d.]+ ?G?B?s?[,.]? ?")
_LINES = 8


@dataclass
class Run:
    """What became of a start."""

    phase: str
    exit_code: int | None = None
    """None: it was still running, and was ended."""
    error: str = ""
    place: str = ""
    """File and line of the engine's last frame, below `sglang/`."""
    lines: list[str] = field(default_factory=list)
    """Those of the log that matter, without times and amounts of memory."""
    accept_length: float | None = None


class Started(Protocol):
    """A server that was started, in a session of its own."""

    pid: int

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""


class Starter(Protocol):
    """A way to start servers."""

    def start(
        self, words: Sequence[str], folder: Path, env: Mapping[str, str], *, lifted: bool
    ) -> Started:
        """Start one; its output goes to `engine.log` in the folder."""


class Processes:
    """As a user starts it: a new process, which imports SGLang, as does its scheduler."""

    def __init__(self, engine: CpuEngine, modules: Sequence[str] = ()) -> None:
        self._engine = engine
        self._env = environment(engine, modules)

    def start(
        self, words: Sequence[str], folder: Path, env: Mapping[str, str], *, lifted: bool
    ) -> Started:
        assert not lifted, "only in a fork"
        with (folder / LOG).open("wb") as output:
            return subprocess.Popen(
                [str(self._engine.python), "-m", "sglang.launch_server", *words],
                env={**self._env, **env},
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=folder,
            )


class Forks:
    """The same in forks of one process that has imported SGLang (fork_server.py)."""

    def __init__(self, engine: CpuEngine, modules: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen(
            [str(engine.python), FORK_SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment(engine, modules),
        )

    def start(
        self, words: Sequence[str], folder: Path, env: Mapping[str, str], *, lifted: bool
    ) -> Started:
        asked = {
            "words": list(words),
            "folder": str(folder),
            "env": dict(env),
            "log": str(folder / LOG),
            "lifted": lifted,
        }
        return Fork(self.ask({"start": asked})["pid"], self)

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """One line, and its answer."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps(question) + "\n")
        stdin.flush()
        answer: dict[str, Any] = json.loads(stdout.readline())
        return answer

    def close(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Fork:
    """One of them."""

    def __init__(self, pid: int, server: Forks) -> None:
        self.pid = pid
        self._server = server
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            self._code = self._server.ask({"poll": self.pid})["code"]
        return self._code


def environment(engine: CpuEngine, modules: Sequence[str]) -> dict[str, str]:
    """That of the engine; `modules`: of its models, those that are needed beside the usual."""
    disabled = set(disabled_models(engine.venv)) - MODEL_MODULES - set(modules)
    usual = engine_environment(engine)
    return usual | {"SGLANG_DISABLED_MODEL_ARCHS": ",".join(sorted(disabled))}


def serve(
    starter: Starter,
    words: Sequence[str],
    folder: Path,
    env: Mapping[str, str],
    *,
    lifted: bool = False,
    seconds: float = SECONDS,
) -> Run:
    """Start a server in `folder`, ask for replies, end all its processes. `lifted`: DFLASH passes
    the check of the device."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = starter.start(
        [*words, "--host", "127.0.0.1", "--port", str(port)], folder, env, lifted=lifted
    )
    log = folder / LOG
    try:
        asked, length = _watch(process, log, port, seconds)
        if asked != "serves":
            _end_of(process, log)
        code = process.poll()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        while process.poll() is None:
            time.sleep(0.05)
    return read(log.read_text(errors="replace"), asked, code, length)


def _watch(process: Started, log: Path, port: int, seconds: float) -> tuple[str, float | None]:
    """How far it came: `start`, or a phase of the requests, or `serves`; the acceptance length."""
    deadline = time.monotonic() + seconds
    while READY not in (said := _text(log)):
        if process.poll() is not None or DIED in said or "warmup error" in said:
            return "start", None
        if time.monotonic() > deadline:
            return "hangs", None
        time.sleep(0.2)
    url = f"http://127.0.0.1:{port}/generate"
    try:
        info = _ask(url, PROMPT, 32)
    except httpx.HTTPError:
        return "first request", None
    length = info.get("spec_accept_length")
    texts = [PROMPT * times for times in (1, 2, 4, 16)]
    try:
        with concurrent.futures.ThreadPoolExecutor(len(texts)) as pool:
            list(pool.map(lambda text: _ask(url, text, 48), texts))
    except httpx.HTTPError:
        return "later requests", length
    return "serves", length


def _text(log: Path) -> str:
    return log.read_text(errors="replace") if log.exists() else ""


def _ask(url: str, text: str, tokens: int) -> dict[str, Any]:
    greedy = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
    answer = httpx.post(url, json={"text": text, "sampling_params": greedy}, timeout=60)
    answer.raise_for_status()
    info: dict[str, Any] = answer.json()["meta_info"]
    return info


def _end_of(process: Started, log: Path) -> None:
    """Let it end by itself for a while, so that its exit code and last words are its own."""
    deadline = time.monotonic() + (30 if DIED in _text(log) else 15)
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)


def read(log: str, asked: str, code: int | None, length: float | None) -> Run:
    """What a log says; `asked` is how far the requests came."""
    lines = [_STAMP.sub("", line) for line in log.splitlines()]
    kind, place = _last_error(lines)
    phase = asked
    if asked == "start":
        phase = _phase(log)
    elif asked == "serves":
        kind, place = "", ""
    matter = []
    for line in lines:
        if _MATTERS.search(line) and not _NOISE.search(line):
            told = _MEMORY.sub("", _neutral(line)).rstrip(" ,.")[:240]
            if told not in matter[-1:]:
                matter.append(told)
    length = None if length is None else round(float(length), 2)
    return Run(phase, code, _neutral(kind)[:400], place, matter[-_LINES:], length)


def _phase(log: str) -> str:
    if "warmup error" in log:
        return "warm-up"
    if DIED not in log:
        return "server startup" if "server_args=" in log else "validation"
    begun, ended = log.count("Load weight begin"), log.count("Load weight end")
    names = {
        (0, 0): "scheduler startup",
        (1, 0): "target loading",
        (1, 1): "target setup",
        (2, 1): "draft loading",
    }
    if "Uvicorn running" in log:
        return "warm-up"
    return names.get((begun, ended), "draft setup")


def _last_error(lines: Sequence[str]) -> tuple[str, str]:
    """The last exception before the processes end one another, and the engine's last frame of it."""
    at = next((n for n, line in enumerate(lines) if DIED in line), None)
    if at is None:
        at = next((n for n, line in enumerate(lines) if "warmup error" in line), 0)
        ends = len(lines)
    else:
        ends = next(
            (n for n in range(at + 1, len(lines)) if "Received sigquit" in lines[n]), len(lines)
        )
    for line in lines:
        if usage := _USAGE.match(line):
            return f"SystemExit: {usage['text']}", ""
    place, found, found_place = "", "", ""
    for number in range(at, ends):
        line = lines[number]
        if line.startswith("Traceback (") or line.endswith("Traceback (most recent call last):"):
            place = ""
        elif frame := _FRAME.match(line):
            place = f"{frame[1].removeprefix('sglang/')}:{frame[2]} ({frame[3]})"
        elif (error := _ERROR.match(line)) and place:
            said = [error["text"] or ""]
            for more in lines[number + 1 : number + 4]:
                if not more.strip() or more.startswith(("Traceback", "During", "The above")):
                    break
                said.append(more.strip())
            told = " ".join(part for part in said if part)
            found = f"{error['kind']}: {told}" if told else error["kind"]
            found_place = place
    return found, found_place


def _neutral(text: str) -> str:
    """Without the folders of this machine."""
    return re.sub(r"(?<![\w.])/(?:[\w.+-]+/)+", "", " ".join(text.split()))


def shown(words: Sequence[str], env: Mapping[str, str]) -> str:
    """The command as a user would write it."""
    before = "".join(f"{key}={shlex.quote(value)} " for key, value in env.items())
    return f"{before}python -m sglang.launch_server {shlex.join(words)}"


def words(arguments: Mapping[str, Any]) -> list[str]:
    """The words of a command line."""
    found: list[str] = []
    for name, value in arguments.items():
        found.append(f"--{name.replace('_', '-')}")
        found += [] if value is True else [str(value)]
    return found
