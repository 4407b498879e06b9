"""Run all tests and two campaigns, and record that this tree passed: `make test-all`.

    python tools/test_all.py -q -n 2 --dist loadgroup

What passed is noted in build/test-all.txt, with a digest of all that the test reaches: a run that
was interrupted, or that failed, is resumed by the next, also after a correction. Fast tests always
run. Every minute it reports how much is left.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from itertools import repeat
from pathlib import Path

import changed_tests
import pytest
import run_tests

CAMPAIGNS = ("fault_injection --rounds 300", "proof run")
"""What no test runs. Campaigns on a cluster, a GPU or the network are tests that are skipped there.
"""
START_SECONDS = 25.0
"""A guess for a test that starts an engine."""


class Progress:
    """A plugin of pytest: note what passed, and report how much is left."""

    def __init__(self, noted: Path, digests: Mapping[str, str], workers: int) -> None:
        self.noted, self.digests, self.workers = noted, digests, workers
        self.begun = self.reported = time.monotonic()
        self.left: set[str] = set()
        self.spent, self.done = 0.0, 0

    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Note what there is to run."""
        self.left = self.left or set(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that ended."""
        self.spent += report.duration
        if report.failed or (report.when != "call" and not report.skipped):
            return
        self.left.discard(report.nodeid)
        self.done += 1
        if any(stage in report.keywords for stage in run_tests.STAGES):
            with self.noted.open("a") as stream:
                stream.write(f"{line(report.nodeid, self.digests)}\n")
        if time.monotonic() - self.reported > 60:
            self.reported = time.monotonic()
            print(f"\n{self.text()}", flush=True)

    def text(self) -> str:
        """Return how much is done, and a guess of the time that the rest takes."""
        starts = sum("e2e" in name for name in self.left)
        rest = starts * START_SECONDS + (len(self.left) - starts) * self.spent / max(1, self.done)
        minutes = (time.monotonic() - self.begun) / 60
        left = rest / self.workers / 60
        total = self.done + len(self.left)
        return f"{self.done} of {total} tests, {minutes:.0f} min, about {left:.0f} min left"


def line(name: str, digests: Mapping[str, str]) -> str:
    """Return what is noted of a test that passed."""
    plain = run_tests.plain_id(name)
    return f"{digests.get(plain.partition('::')[0], '')} {plain}"


def main(argv: list[str]) -> int:
    """The exit status: 0 if everything passed, in this run and in those that it resumes."""
    noted = changed_tests.ROOT / "build" / "test-all.txt"
    noted.parent.mkdir(exist_ok=True)
    noted.touch()
    digests = changed_tests.reached_digests(changed_tests.ROOT)
    lines = set(noted.read_text().splitlines())
    tests = (name for _, _, name in map(str.partition, lines, repeat(" ")))
    with tempfile.NamedTemporaryFile("w", prefix="speclaunch-passed-") as passed:
        passed.write("\n".join(name for name in tests if line(name, digests) in lines))
        passed.flush()
        os.environ["TESTS_PASSED"] = passed.name
        progress = Progress(noted, digests, os.cpu_count() or 1)
        status = run_tests.main(argv, plugins=[progress])
    tree = hashlib.sha256("".join(digests.values()).encode()).hexdigest()[:12]
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return status
    for campaign in CAMPAIGNS:
        if f"{tree} {campaign}" not in lines:
            print(campaign, flush=True)
            done = subprocess.run(
                [sys.executable, "-m", "campaigns", *shlex.split(campaign)], check=False
            )
            if done.returncode != 0:
                return done.returncode
            with noted.open("a") as stream:
                stream.write(f"{tree} {campaign}\n")
    changed_tests.record(changed_tests.ROOT)
    print(f"all passed; commit {changed_tests.RECORD}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
