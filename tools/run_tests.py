"""Run tests as pytest would, and those that fail once more, alone: `make test` does it.

    python tools/run_tests.py -q -m e2e
    python tools/run_tests.py --sample --beside 'lint=make lint' -q

`--sample` selects what `make test` runs (tests/support/sampling.py). `--beside NAME=COMMAND` runs a
command at the same time: its output is shown if it fails, and then the run fails. The report ends
with the seconds of each stage. `--processes N` runs the tests in N processes (forked_tests.py).

A test that starts processes, or the real engine, can fail by its machine: a host that pauses its
guests, a port that another program takes. What fails is shown either way; up to `AT_MOST` failed
tests run again, one after the other in a new process, and the exit status is theirs. A test that
passes only then is named: it is unsteady, which is a defect as well.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import changed_tests
import forked_tests
import pytest

AT_MOST = 10
"""With more failures than this it is not the machine. Several: tests may share one server."""
BUDGET = 12 * 60
"""Seconds after which `--sample` starts nothing more that only a change asks for. With what runs
then, and with setting up, `make test` stays below 15 minutes on two cores."""
PARTS = 10
STAGES = ("e2e", "slow", "thorough")
_GROUP = re.compile(r"@engine-[\w-]+$")


def plain_id(name: str) -> str:
    """Return the name of a test without the group that xdist adds."""
    return _GROUP.sub("", name)


class Failures:
    """A plugin of pytest: the tests that failed, in the order in which they ended."""

    def __init__(self) -> None:
        self.ids: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test whose setup, call or teardown failed."""
        if report.failed:
            self.ids[plain_id(report.nodeid)] = None


class Beside:
    """A command that runs while the tests run, with its output in a file."""

    def __init__(self, text: str) -> None:
        self.name, _, command = text.partition("=")
        self.output = tempfile.TemporaryFile("w+")  # noqa: SIM115 - read when the command has ended
        self.begun = time.monotonic()
        self.seconds = 0.0
        self.process = subprocess.Popen(
            shlex.split(command),
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def ended(self) -> bool:
        """Return True if it has ended, and note when."""
        if self.process.poll() is None:
            return False
        self.seconds = self.seconds or time.monotonic() - self.begun
        return True

    def wait(self) -> str:
        """Wait for its end. Return its output if it failed."""
        self.process.wait()
        self.ended()
        self.output.seek(0)
        return "" if self.process.returncode == 0 else self.output.read()

    def stop(self) -> None:
        """End it and everything that it started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait()


class Stages:
    """A plugin of pytest: other commands next to the tests, and the seconds of everything."""

    def __init__(self, beside: list[Beside]) -> None:
        self.beside = beside
        self.begun = time.monotonic()
        self.collected = 0.0
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.broken: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the seconds of a test to its stage."""
        self.collected = self.collected or time.monotonic() - self.begun
        stage = next((name for name in STAGES if name in report.keywords), "fast")
        self.seconds[stage] += report.duration
        for one in self.beside:
            one.ended()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail if a command next to the tests failed."""
        for one in self.beside:
            if text := one.wait():
                self.broken[one.name] = text
        if self.broken and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show what failed next to the tests, and the table."""
        for name, text in self.broken.items():
            terminalreporter.section(f"{name} failed")
            terminalreporter.write_line(text)
        terminalreporter.section("seconds of each stage")
        for one in self.beside:
            terminalreporter.write_line(f"{one.name:<20}{one.seconds:>7.0f}  next to the tests")
        terminalreporter.write_line(f"{'start and collection':<20}{self.collected:>7.0f}")
        for name in ("fast", *reversed(STAGES)):
            terminalreporter.write_line(f"{name:<20}{self.seconds[name]:>7.0f}  sum of all workers")
        total = time.monotonic() - self.begun
        terminalreporter.write_line(f"{'together':<20}{total:>7.0f}")


def part(root: Path) -> int:
    """Return the part of each campaign that a tree runs: by its commits, else by its content."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(root), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    if git("rev-parse", "--is-shallow-repository") == "false":
        return int(git("rev-list", "--count", "HEAD")) % PARTS
    digests = "".join(sorted(own for _, own, _ in changed_tests.read(root)))
    return int(hashlib.sha256(digests.encode()).hexdigest(), 16) % PARTS


def sample(folder: Path) -> dict[str, str]:
    """Return the variables by which tests/support/sampling.py selects."""
    touched = folder / "touched.json"
    touched.write_text(json.dumps(changed_tests.touched(changed_tests.ROOT)))
    chosen = os.environ.get("TESTS_PART") or str(part(changed_tests.ROOT))
    until = str(time.time() + float(os.environ.get("TESTS_BUDGET", BUDGET)))
    return {"TESTS_PART": chosen, "TESTS_TOUCHED": str(touched), "TESTS_UNTIL": until}


def main(argv: list[str], plugins: Sequence[object] = ()) -> int:
    """The exit status: pytest's, of the second run if there was one."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--sample", action="store_true")
    parser.add_argument("--beside", action="append", default=[])
    parser.add_argument("--processes", default="1")
    own, words = parser.parse_known_args(argv)
    sys.path[0] = ""  # as `python -m pytest` has it, not the folder of this file
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # `finally` below
    beside = [Beside(text) for text in own.beside]
    try:
        failures, stages = Failures(), Stages(beside)
        with tempfile.TemporaryDirectory(prefix="speclaunch-sample-") as folder:
            if own.sample:
                os.environ.update(sample(Path(folder)))
            count = os.cpu_count() or 1 if own.processes == "auto" else int(own.processes)
            forked = forked_tests.Forked(count)
            own_plugins = [failures, stages] if beside else [failures]
            status = int(pytest.main(words, plugins=[*own_plugins, forked, *plugins]))
        for name in ("TESTS_PART", "TESTS_TOUCHED", "TESTS_UNTIL"):
            os.environ.pop(name, None)
    finally:
        for one in beside:
            one.stop()
    failed = list(failures.ids)
    if status != pytest.ExitCode.TESTS_FAILED or not 0 < len(failed) <= AT_MOST:
        return status
    print(f"\nOnce more, alone: {', '.join(failed)}", flush=True)
    again = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *failed],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if again.returncode == pytest.ExitCode.OK:
        print(f"Unsteady (failed above, passed alone): {', '.join(failed)}")
    print(again.stdout, end="", flush=True)
    broken = beside and stages.broken
    return status if broken else again.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
