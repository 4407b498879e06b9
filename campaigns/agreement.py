"""Break ranks that agree on settings at random moments, and look for a split: `run`, `show`.

Each round launches the ranks of one server through the command line (the scripted engine of the
tests, or with `--real` the CPU engine), makes starts fail for memory, and does evil things: `kill
-9` of speclaunch and of engines, a speclaunch that is stopped for longer than its lease, a shared
disk that is full, slow, stale or read-only. It restarts what was killed, as a platform does. Then
it asks:

* did two engines ever run with different settings at the same time? (the kernel's locks say it)
* did the decision of an epoch ever change, or were there two of one epoch?
* did every attempt run with what was decided?
* is any process left, or an unfinished file? Was a traceback shown?
* do all ranks serve with the same settings, or did they all end and say why?

    python -m campaigns agreement run --rounds 100
    python -m campaigns agreement show
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from speclaunch.serving.launch.runs import free_port
from tests.support.serving.launch import fake_sglang

ROOT = Path(__file__).resolve().parent.parent

RANK = Path(__file__).with_name("_agreement_rank.py")
RESULTS = ROOT / "tests" / "serving" / "launch" / "agreement" / "campaign.jsonl"
LEASE = 3.0
TIMEOUT = 25.0
LEFT_SECONDS = 15.0
RESTARTS = 4
FAULTS = ("kill speclaunch", "kill engine", "stop speclaunch", "slow", "ENOSPC", "ESTALE", "EROFS")
FULL_DISK = "tmpfs full"
FLOORS = ("recovery.floors.mem_fraction_static=0.1",)


@dataclass
class Rank:
    """One host: what runs there, and what ran."""

    number: int
    home: Path
    words: Sequence[str]
    env: dict[str, str]
    control: Path
    process: subprocess.Popen[bytes] | None = None
    codes: list[int] = field(default_factory=list)
    starts: int = 0

    def start(self) -> None:
        """Start it, as the platform does."""
        self.starts += 1
        with (self.home / "output.txt").open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(RANK), str(self.control), *self.words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self.env,
                cwd=ROOT,
                start_new_session=True,
            )

    def poll(self) -> int | None:
        """The exit code of the last start, noted once."""
        if self.process is None:
            return self.codes[-1] if self.codes else None
        code = self.process.poll()
        if code is not None:
            self.codes.append(code)
            self.process = None
        return code

    def engine(self) -> int | None:
        """The process id of its engine."""
        with contextlib.suppress(psutil.Error):
            if self.process is not None:
                for one in psutil.Process(self.process.pid).children(recursive=True):
                    if "launch_server" in " ".join(one.cmdline()):
                        return one.pid
        return None

    def send(self, pid: int | None, number: signal.Signals) -> None:
        """A signal to a process that may have ended."""
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


class Round:
    """One deployment and what is done to it."""

    def __init__(self, seed: str, scratch: Path, *, real: bool = False) -> None:
        self.dice = random.Random(seed)  # noqa: S311 - to find trouble
        self.seed, self.scratch, self.real = seed, scratch, real
        self.shared = scratch / "shared"
        self.problems: list[str] = []
        self.known: dict[str, bytes] = {}
        self.done: list[str] = []

    def run(self) -> dict[str, Any]:
        """Do it; what it came to."""
        begun = time.monotonic()
        full = self.dice.random() < 0.15 and os.geteuid() == 0 and not self.real
        self.shared.mkdir()
        if full:
            self._mount()
        ended = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(ended,), daemon=True)
        ranks = self._ranks()
        watcher.start()
        try:
            for rank in ranks:
                rank.start()
                time.sleep(self.dice.uniform(0, 0.5))
            self._strike(ranks, full=full)
            outcome = self._settle(ranks)
            self._end(ranks)
        finally:
            ended.set()
            watcher.join()
            for rank in ranks:
                if rank.process is not None:
                    rank.send(rank.process.pid, signal.SIGKILL)
                    rank.process.wait()
            self._judge(ranks)
            if full:
                subprocess.run(["umount", "-l", str(self.shared)], check=False)
        return {
            "seed": self.seed,
            "real": self.real,
            "ranks": len(ranks),
            "faults": self.done,
            "bands": self.bands,
            "outcome": outcome,
            "epochs": self.kinds,
            "why": self.why,
            "codes": [rank.codes for rank in ranks],
            "seconds": round(time.monotonic() - begun, 1),
            "problems": self.problems,
        }

    def _ranks(self) -> list[Rank]:
        count = 2 if self.real or self.dice.random() < 0.8 else 3
        if self.real:
            return self._real_ranks()
        engine = fake_sglang.recipe(self.scratch)
        locks = self.scratch / "locks"
        locks.mkdir()
        meeting, ports = free_port(), [free_port() for _ in range(count)]
        self.bands = []
        ranks = []
        for number in range(count):
            band = self.dice.choice(["0:1", "0:1", "0:0.4", "0:0.3", "0:0.3", "0:0.05"])
            self.bands.append(band)
            home = self.scratch / f"host{number}"
            home.mkdir()
            (home / "control").write_text("")
            words = [
                *["launch", f"recipe={engine}", f"args.port={ports[number]}", "--force"],
                *[f"+args.nnodes={count}", f"+args.node_rank={number}", f"+args.tp_size={count}"],
                f"+args.dist_init_addr=127.0.0.1:{meeting}",
                *["recovery=default", "recovery.policy=order", *FLOORS],
                *[f"launch.agreement.directory={self.shared}", "launch.agreement.job=campaign"],
                f"launch.agreement.lease_seconds={LEASE:g}",
                f"launch.agreement.timeout_seconds={TIMEOUT:g}",
            ]
            env = {
                **os.environ,
                "SPECLAUNCH_HOME": str(home),
                "FAKE_LOCKS": str(locks),
                "FAKE_FRACTIONS": band,
                "FAKE_START_SECONDS": f"{self.dice.uniform(0.1, 1.0):.2f}",
                "PYTHONUNBUFFERED": "1",
            }
            ranks.append(Rank(number, home, words, env, home / "control"))
        return ranks

    def _real_ranks(self) -> list[Rank]:
        """The CPU engine as two hosts, with too small a pool: both have to step, or one of them."""
        meeting, ports, self.bands = (
            free_port(),
            [free_port() for _ in range(2)],
            ["small pool"] * 2,
        )
        installed = Path(os.environ.get("SPECLAUNCH_HOME", Path.home() / ".cache" / "speclaunch"))
        ranks = []
        shared_home = self.scratch / "home"  # the models' paths are alike on all hosts
        shared_home.mkdir()
        (shared_home / "cpu-engine").symlink_to(installed / "cpu-engine")
        for number in range(2):
            home = self.scratch / f"host{number}"
            home.mkdir()
            (home / "control").write_text("")
            words = [
                *["launch", "recipe=cpu_standalone", f"args.port={ports[number]}", "--force"],
                *["+args.nnodes=2", f"+args.node_rank={number}", "+args.tp_size=2"],
                f"+args.dist_init_addr=127.0.0.1:{meeting}",
                '+engine.env.SGLANG_CPU_OMP_THREADS_BIND="0|1"',
                *["args.mem_fraction_static=0.0001", "args.max_total_tokens=null"],
                *["recovery=default", "recovery.floors.mem_fraction_static=0.00005"],
                "recovery.limits.mem_fraction_static=0.2",
                *[f"launch.agreement.directory={self.shared}", "launch.agreement.job=campaign"],
                *["launch.agreement.lease_seconds=10", "launch.agreement.timeout_seconds=200"],
            ]
            env = {**os.environ, "SPECLAUNCH_HOME": str(shared_home), "PYTHONUNBUFFERED": "1"}
            ranks.append(Rank(number, home, words, env, home / "control"))
        return ranks

    def _strike_real(self, ranks: list[Rank]) -> None:
        self._stay(ranks, self.dice.uniform(5, 60))
        rank = self.dice.choice(ranks)
        what = self.dice.choice(["nothing", "kill speclaunch", "kill engine"])
        self.done.append(f"{what} {rank.number}")
        if what == "kill speclaunch" and rank.process is not None:
            rank.send(rank.process.pid, signal.SIGKILL)
        elif what == "kill engine":
            rank.send(rank.engine(), signal.SIGKILL)

    def _strike(self, ranks: list[Rank], *, full: bool) -> None:
        if self.real:
            self._strike_real(ranks)
            return
        for _ in range(self.dice.randint(1, 4)):
            self._stay(ranks, self.dice.uniform(0.2, 4))
            rank, what = self.dice.choice(ranks), self.dice.choice(FAULTS)
            if full and self.dice.random() < 0.7:
                what = FULL_DISK
            self.done.append(f"{what} {rank.number}")
            if what == "kill speclaunch" and rank.process is not None:
                rank.send(rank.process.pid, signal.SIGKILL)
            elif what == "kill engine":
                rank.send(rank.engine(), signal.SIGKILL)
            elif what == "stop speclaunch" and rank.process is not None:
                pid = rank.process.pid
                rank.send(pid, signal.SIGSTOP)
                self._stay(ranks, self.dice.uniform(0.5, 3 * LEASE))
                rank.send(pid, signal.SIGCONT)
            elif what == FULL_DISK:
                filler = self.shared / "filler"
                with contextlib.suppress(OSError), filler.open("wb") as file:
                    while True:
                        file.write(b"x" * 4096)
                        file.flush()
                self._stay(ranks, self.dice.uniform(0.5, 2 * LEASE))
                filler.unlink(missing_ok=True)
            elif what in ("slow", "ENOSPC", "ESTALE", "EROFS"):
                said = (
                    f"slow {self.dice.uniform(0.1, 1.5):.2f}" if what == "slow" else f"error {what}"
                )
                rank.control.write_text(said)
                self._stay(ranks, self.dice.uniform(0.5, 2 * LEASE))
                rank.control.write_text("")

    def _stay(self, ranks: list[Rank], seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._platform(ranks)
            time.sleep(0.05)

    def _platform(self, ranks: list[Rank]) -> None:
        """What ended and was not meant to is started again."""
        for rank in ranks:
            code = rank.poll()
            failed = rank.process is None and code not in (None, 0)
            if failed and rank.starts <= RESTARTS and not self._over():
                rank.start()

    def _settle(self, ranks: list[Rank]) -> str:
        """Wait until they serve together, or have ended."""
        until = time.monotonic() + (480 if self.real else 120)
        while time.monotonic() < until:
            self._platform(ranks)
            if all(rank.process is None for rank in ranks):
                return "ended"
            decisions = self._decisions()
            if decisions and not self._over():
                epoch = decisions[-1]["epoch"]
                if (self._generation / f"served-{epoch:05d}.json").exists():
                    return "served"
            time.sleep(0.05)
        self.problems.append("they neither served together nor ended")
        return "stuck"

    def _end(self, ranks: list[Rank]) -> None:
        for rank in ranks:
            if rank.process is not None:
                rank.send(rank.process.pid, signal.SIGTERM)
        until = time.monotonic() + 40
        while any(rank.poll() is None and rank.process for rank in ranks):
            if time.monotonic() > until:
                self.problems.append("a rank did not end after SIGTERM")
                return
            time.sleep(0.05)

    def _watch(self, ended: threading.Event) -> None:
        """Note each decision when it is first seen, and whether it ever changes."""
        before: set[str] = set()
        while not ended.wait(0.05):
            self._compare()
            if self.real:
                now = self._running_settings()
                if len(now & before) > 1:
                    self.problems.append(f"split: {sorted(now & before)}")
                before = now

    def _compare(self) -> None:
        for path in (self.shared / "campaign").glob("g*/epoch-*.json"):
            with contextlib.suppress(OSError):
                data, name = path.read_bytes(), str(path)
                if self.known.setdefault(name, data) != data:
                    self.problems.append(f"{path.name} has changed")

    def _running_settings(self) -> set[str]:
        """The settings of the engines that run now, by their command lines."""
        found, mark = set(), f"SPECLAUNCH_HOME={self.scratch}".encode()
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if "sglang.launch_server" in words and "--mem-fraction-static" in words:
                with contextlib.suppress(psutil.Error, OSError):
                    if mark in Path(f"/proc/{process.pid}/environ").read_bytes():
                        found.add(words[words.index("--mem-fraction-static") + 1])
        return found

    @property
    def _generation(self) -> Path:
        found = sorted((self.shared / "campaign").glob("g*"))
        return found[-1] if found else self.shared / "none"

    def _decisions(self) -> list[dict[str, Any]]:
        found = []
        for path in sorted(self._generation.glob("epoch-*.json")):
            with contextlib.suppress(OSError, ValueError):
                found.append(json.loads(path.read_bytes()))
        return found

    def _over(self) -> bool:
        decisions = self._decisions()
        return bool(decisions) and decisions[-1]["kind"] == "end"

    def _judge(self, ranks: list[Rank]) -> None:
        self._compare()
        decisions = self._decisions()
        self.kinds = [one["kind"] for one in decisions]
        self.why = decisions[-1]["why"] if decisions else ""
        if self.real and "memory" not in self.kinds:
            self.problems.append(f"they did not step: {self.why}")
        split = self.scratch / "locks" / "split"
        if split.exists():
            self.problems.append(f"split: {split.read_text().strip()}")
        if [one["epoch"] for one in decisions] != list(range(len(decisions))):
            self.problems.append("the epochs are not one after the other")
        left = self._left()
        if left:
            self.problems.append(f"processes left: {left}")
        unfinished = [path.name for path in self.shared.rglob(".tmp-*")]
        if unfinished and all(rank.codes and rank.codes[-1] >= 0 for rank in ranks):
            self.problems.append(f"unfinished files: {unfinished}")
        decided = [json.loads(data)["parts"]["server"]["changes"] for data in self.known.values()]
        for rank in ranks:
            said = (rank.home / "output.txt").read_text(errors="replace")
            if "Traceback (most recent call last)" in said.replace(
                "hit an exception: Traceback", ""
            ):
                self.problems.append(f"rank {rank.number} showed a traceback")
            home = Path(rank.env["SPECLAUNCH_HOME"])
            for path in (home / "runs").glob("*/journal.json"):
                with contextlib.suppress(ValueError):
                    for one in json.loads(path.read_text())["attempts"]:
                        if one["changes"] not in decided:
                            self.problems.append(f"rank {rank.number} ran {one['changes']}")

    def _left(self) -> list[str]:
        mark = f"SPECLAUNCH_HOME={self.scratch}".encode()
        until = time.monotonic() + LEFT_SECONDS
        while True:
            left = []
            for process in psutil.process_iter():
                with contextlib.suppress(psutil.Error, OSError):
                    ours = mark in Path(f"/proc/{process.pid}/environ").read_bytes()
                    if ours and process.status() != psutil.STATUS_ZOMBIE:
                        left.append(f"{process.pid} {' '.join(process.cmdline())[:80]}")
            if not left or time.monotonic() > until:
                return left
            time.sleep(0.2)

    def _mount(self) -> None:
        words = ["mount", "-t", "tmpfs", "-o", "size=512k", "speclaunch-campaign", str(self.shared)]
        if subprocess.run(words, check=False, capture_output=True).returncode:
            self.done.append("no tmpfs here")


def rounds(
    seeds: Sequence[str], at_once: int = 1, *, real: bool = False
) -> Iterator[dict[str, Any]]:
    """The results of these rounds."""

    def one(seed: str) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="agreement-") as scratch:
            return Round(seed, Path(scratch), real=real).run()

    with ThreadPoolExecutor(at_once) as pool:
        yield from pool.map(one, seeds)


def stored() -> list[dict[str, Any]]:
    """The rounds of the last campaign."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()]


def show(results: Sequence[dict[str, Any]]) -> int:
    """What they came to; how many were bad."""
    kinds = collections.Counter(
        fault.rpartition(" ")[0] for one in results for fault in one["faults"]
    )
    outcomes = collections.Counter(one["outcome"] for one in results)
    epochs = collections.Counter(kind for one in results for kind in one["epochs"])
    bad = [one for one in results if one["problems"]]
    print(f"{len(results)} rounds, {len(bad)} bad; outcomes {dict(outcomes)}")
    print(f"decisions {dict(epochs)}")
    print(f"faults {dict(kinds)}")
    for one in bad:
        print(f"{one['seed']}: {one['problems']} after {one['faults']}")
    return len(bad)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["run", "show"])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--real", action="store_true", help="the CPU engine, not the scripted one")
    parser.add_argument("--store", action="store_true", help=f"write {RESULTS.relative_to(ROOT)}")
    given = parser.parse_args()
    if given.what == "show":
        sys.exit(1 if show(stored()) else 0)
    seeds = [f"{given.seed}/{number}" for number in range(given.rounds)]
    results = []
    for one in rounds(seeds, given.at_once, real=given.real):
        results.append(one)
        print(json.dumps(one), flush=True)
    if given.store:
        kept = [one for one in stored() if one["real"] != given.real] if RESULTS.exists() else []
        RESULTS.write_text("".join(f"{json.dumps(one)}\n" for one in [*kept, *results]))
    sys.exit(1 if show(results) else 0)
