"""Break launches at random moments, and count what is left: `--rounds N [--real]`.

Each round launches through the command line (the scripted engine of the tests, or with `--real` the
CPU engine), does one evil thing at a random moment of start, service or stop, and then asks:

* is any process of it left ten seconds later?
* is the journal there, whole, and free of contradictions?
* is the exit code the right one?
* is a port or a lock still held?

    python -m campaigns fault_injection --rounds 300
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import pty
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from speclaunch.serving.launch import guard
from speclaunch.serving.launch.runs import free_port
from tests.support.serving.launch import fake_sglang

ROOT = Path(__file__).resolve().parent.parent

KILL, TERM, INT, STOP = signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSTOP
LEFT_SECONDS = 10.0
VICTIMS = ("speclaunch", "engine", "scheduler", "detokenizer", "guard")
MOMENTS = ("start", "serve", "stop")


@dataclass(frozen=True)
class Fault:
    """One evil thing, when it is done, and which exit codes are right."""

    name: str
    moment: str
    codes: frozenset[int]
    journal: bool = True
    """Whether a journal must be there and tell the end; a killed speclaunch can't write it."""


@dataclass
class Launch:
    """A launch in a process group of its own."""

    process: subprocess.Popen[bytes]
    directory: Path
    port: int
    terminal: int | None = None
    output: Path = field(default_factory=Path)

    def run_directory(self) -> Path | None:
        """Where its journal and logs are, as soon as there is one."""
        with contextlib.suppress(OSError):
            return next(iter(sorted((self.directory / "runs").iterdir())), None)
        return None

    def below(self) -> list[psutil.Process]:
        """Every process below speclaunch."""
        with contextlib.suppress(psutil.Error):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []

    def find(self, victim: str) -> int | None:
        """The process id of a victim, once it lives."""
        if victim == "speclaunch":
            return self.process.pid
        for process in self.below():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                text = " ".join(words)
                if victim == "guard" and "guard.py" in text:
                    return process.pid
                if victim in ("scheduler", "detokenizer") and f"sglang::{victim}" in text:
                    return process.pid
                if victim == "engine" and "launch_server" in text:
                    return process.pid
        return None

    def state(self) -> str | None:
        """What its journal says."""
        directory = self.run_directory()
        if directory is None:
            return None
        with contextlib.suppress(OSError, ValueError):
            return str(json.loads((directory / "journal.json").read_text())["state"])
        return None

    def wait_for(self, states: set[str], seconds: float) -> None:
        """Wait until its journal says so, or it has ended."""
        deadline = time.monotonic() + seconds
        while self.state() not in states and self.process.poll() is None:
            if time.monotonic() > deadline:
                return
            time.sleep(0.02)


def faults() -> list[Fault]:
    """Everything that is done."""
    found = []
    for victim in VICTIMS:
        for number in (KILL, TERM, INT, STOP):
            if victim == "guard" and number is not KILL:
                continue
            if number is STOP and victim == "speclaunch":
                continue  # it goes on when it is continued; done below with -9 after it
            for moment in MOMENTS:
                codes = _codes(victim, number, moment)
                unknown = victim == "speclaunch" and number is KILL
                found.append(
                    Fault(f"{number.name} {victim}", moment, frozenset(codes), not unknown)
                )
    killed = frozenset({-9})
    found.append(Fault("STOP speclaunch, then -9", "serve", killed, journal=False))
    stopped = frozenset({0, 130})
    for moment in ("start", "serve"):
        found += [
            Fault("log directory removed", moment, stopped | {1}, journal=False),
            Fault("file size limit (disk full)", moment, stopped, journal=False),
            Fault("stdout closed", moment, stopped),
            Fault("terminal resized", moment, stopped),
            Fault("clock jump", moment, stopped),
        ]
    return found


def _codes(victim: str, number: signal.Signals, moment: str) -> set[int]:
    """The exit codes of speclaunch that say what happened."""
    if victim == "speclaunch" and number is KILL:
        return {-9, 0, 130} if moment == "stop" else {-9}
    if victim == "speclaunch":
        return {0, 130}  # 0: SIGTERM, and it served by then
    if moment == "stop":  # it was being stopped by SIGTERM while it served
        return {0}
    if moment == "start":  # what it was meant for may not live yet: it serves, and is stopped
        return {0, 1, 130}
    asked = {TERM: {0}, INT: {0, 1}}  # somebody else asked the engine to end, and it did
    return asked.get(number, {1}) if victim == "engine" else {1}  # it crashed, or hangs


class Round:
    """One launch and one fault."""

    def __init__(self, fault: Fault, dice: random.Random, scratch: Path, *, real: bool) -> None:
        self.fault, self.dice, self.real = fault, dice, real
        self.directory = scratch
        self.problems: list[str] = []

    def run(self) -> list[str]:
        """Do it; what was wrong afterwards."""
        launch = self._launch()
        seen: set[int] = set()
        ended = threading.Event()
        watcher = threading.Thread(target=self._census, args=(launch, seen, ended), daemon=True)
        watcher.start()
        try:
            self._at_the_moment(launch)
            self._strike(launch)
            self._end(launch)
        finally:
            ended.set()
            watcher.join()
            code = launch.process.poll()
            self._judge(launch, code, seen)
            for pid in [launch.process.pid, *seen]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            launch.process.wait()
            if launch.terminal is not None:
                os.close(launch.terminal)
        return self.problems

    def _launch(self) -> Launch:
        port = free_port()
        env = {
            **os.environ,
            "SPECLAUNCH_HOME": str(self.directory),
            "FAKE_START_SECONDS": f"{self.dice.uniform(0.2, 1.0):.2f}",
            "PYTHONUNBUFFERED": "1",
        }
        if self.fault.name == "clock jump":
            env["PYTHONPATH"] = str(_jumping_clock(self.directory))
        if self.real:
            home = Path(os.environ.get("SPECLAUNCH_HOME", Path.home() / ".cache" / "speclaunch"))
            (self.directory / "cpu-engine").symlink_to(home / "cpu-engine")
            words = ["recipe=cpu_ngram"]
        else:
            words = [f"recipe={fake_sglang.recipe(self.directory)}"]
        # with the recovery on, what a fault ended is started again, and its end is another
        words += [f"args.port={port}", "recovery=off", "launch.grace_seconds=4"]
        words += ["launch.watchdog.failures=2"]
        words += ["launch.watchdog.interval_seconds=0.5", "launch.watchdog.timeout_seconds=1"]
        terminal, output = None, self.directory / "output.txt"
        stream: Any = output.open("wb")
        if self.fault.name in ("terminal resized", "stdout closed"):
            terminal, stream = pty.openpty()
        limit = self.fault.name.startswith("file size")
        process = subprocess.Popen(
            [sys.executable, "-m", "speclaunch", *words],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env=env,
            cwd=ROOT,
            start_new_session=True,
            preexec_fn=_small_files if limit else None,  # noqa: PLW1509 - one thread here
        )
        if terminal is None:
            stream.close()
        else:
            os.close(stream)
        return Launch(process, self.directory, port, terminal, output)

    def _census(self, launch: Launch, seen: set[int], ended: threading.Event) -> None:
        """Note every process that the launch ever has, so that none can slip away."""
        while not ended.wait(0.05):
            seen |= {process.pid for process in launch.below()}

    def _at_the_moment(self, launch: Launch) -> None:
        patience = 240 if self.real else 30
        if self.fault.moment == "start":
            launch.wait_for({"starting", "serving", "ended"}, patience)
            time.sleep(self.dice.uniform(0, 12 if self.real else 1.2))
            return
        launch.wait_for({"serving", "ended"}, patience)
        time.sleep(self.dice.uniform(0, 1.5))
        if self.fault.moment == "stop":
            launch.process.send_signal(TERM)
            time.sleep(self.dice.uniform(0, 0.5))

    def _strike(self, launch: Launch) -> None:
        name, _, victim = self.fault.name.partition(" ")
        if self.fault.name == "log directory removed":
            directory = launch.run_directory()
            if directory is not None:
                shutil.rmtree(directory, ignore_errors=True)
        elif self.fault.name == "STOP speclaunch, then -9":
            os.kill(launch.process.pid, STOP)
            time.sleep(0.3)
            os.kill(launch.process.pid, KILL)
        elif self.fault.name == "stdout closed":
            assert launch.terminal is not None
            os.close(launch.terminal)
            launch.terminal = None
        elif self.fault.name == "terminal resized":
            for _ in range(5):
                os.kill(launch.process.pid, signal.SIGWINCH)
                time.sleep(0.05)
        elif victim in VICTIMS:
            pid = launch.find(victim)
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.Signals[name])

    def _end(self, launch: Launch) -> None:
        """Let it end; one that goes on is asked to, as its user would."""
        found_out = self.fault.moment == "serve" and self.fault.codes == {1}
        patience = (90 if self.real else 40) if found_out else self.dice.uniform(1, 3)
        with contextlib.suppress(subprocess.TimeoutExpired):
            launch.process.wait(patience)
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(launch.process.pid, TERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            launch.process.wait(90 if self.real else 30)

    def _judge(self, launch: Launch, code: int | None, seen: set[int]) -> None:
        if code is None:
            self.problems.append("speclaunch did not end")
        elif code not in self.fault.codes:
            self.problems.append(f"exit code {code}, not one of {sorted(self.fault.codes)}")
        left = _left(seen)
        if left:
            self.problems.append(f"processes left: {left}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", launch.port), 1):
            self.problems.append(f"port {launch.port} still answers")
        self._judge_journal(launch, code)
        if launch.output.is_file() and "Traceback" in launch.output.read_text(errors="replace"):
            self.problems.append("a traceback was shown")

    def _judge_journal(self, launch: Launch, code: int | None) -> None:
        directory = launch.run_directory()
        if directory is None:
            if self.fault.journal:
                self.problems.append("no journal")
            return
        path = directory / "journal.json"
        if not path.exists() and not self.fault.journal:
            return
        try:
            document = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            self.problems.append(f"journal unreadable: {error}")
            return
        if self.fault.journal:
            ending = document.get("ending")
            if not ending:
                self.problems.append(f"the journal has no end (state {document.get('state')})")
            elif ending["exit_code"] != code:
                self.problems.append(f"the journal says {ending['exit_code']}, it was {code}")


def _left(seen: set[int]) -> list[str]:
    """What lives on of the processes that a launch had."""
    deadline = time.monotonic() + LEFT_SECONDS
    while True:
        left = []
        for pid in seen:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    with contextlib.suppress(OSError):
                        env = Path(f"/proc/{pid}/environ").read_bytes()
                        if guard.RUN_VARIABLE.encode() in env:  # not a reused process id
                            left.append(f"{pid} {' '.join(process.cmdline())[:60]}")
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.1)


def _small_files() -> None:
    """What a full disk does to a writer: no file grows beyond 3 kB."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))


def _jumping_clock(directory: Path) -> Path:
    """A directory that makes `time.time` jump by days in every Python that has it on its path."""
    place = directory / "clock"
    place.mkdir()
    (place / "sitecustomize.py").write_text(
        "import random, time\n"
        "real = time.time\n"
        "time.time = lambda: real() + random.choice([-1, 0, 1]) * 86400 * random.random()\n"
    )
    return place


def rounds(
    number: int, seed: int, *, real: bool, say: Callable[[str], None] = print
) -> collections.Counter[str]:
    """Run so many rounds; what went wrong, counted, under `bad`, and the rest under `good`."""
    dice = random.Random(seed)  # noqa: S311 - to find trouble, not to hide anything
    kinds = faults()
    dice.shuffle(kinds)
    counts: collections.Counter[str] = collections.Counter()
    for index in range(number):
        fault = kinds[index % len(kinds)]
        with tempfile.TemporaryDirectory(prefix="faults-") as scratch:
            one = Round(fault, random.Random(f"{seed}/{index}"), Path(scratch), real=real)  # noqa: S311
            problems = one.run()
        counts["bad" if problems else "good"] += 1
        counts[f"{fault.moment}: {fault.name}"] += 1
        for problem in problems:
            say(f"round {index}: {fault.name} at {fault.moment}: {problem}")
        if (index + 1) % 20 == 0:
            say(f"{index + 1} rounds, {counts['bad']} bad")
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--real", action="store_true", help="the CPU engine, not the scripted one")
    given = parser.parse_args()
    started = time.monotonic()
    counts = rounds(given.rounds, given.seed, real=given.real)
    for name, count in sorted(counts.items()):
        print(f"{count:5}  {name}")
    print(f"{given.rounds} rounds in {time.monotonic() - started:.0f} s, {counts['bad']} bad")
    sys.exit(1 if counts["bad"] else 0)
