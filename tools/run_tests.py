"""Run tests as pytest would, and those that fail once more, alone: `make test` does it.

    python tools/run_tests.py -q -m e2e

A test that starts processes, or the real engine, can fail by its machine: a host that pauses its
guests, a port that another program takes. What fails is shown either way; up to `AT_MOST` failed
tests run again, one after the other in a new process, and the exit status is theirs. A test that
passes only then is named at the end: it is unsteady, which is a defect as well.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

AT_MOST = 10
"""With more failures than this it is not the machine. Several: tests may share one server."""


class Failures:
    """A plugin of pytest: the tests that failed, in the order in which they ended."""

    def __init__(self) -> None:
        self.ids: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test whose setup, call or teardown failed."""
        if report.failed:
            self.ids[report.nodeid] = None


def main(words: list[str]) -> int:
    """The exit status: pytest's, of the second run if there was one."""
    sys.path[0] = ""  # as `python -m pytest` has it, not the folder of this file
    failures = Failures()
    status = int(pytest.main(words, plugins=[failures]))
    failed = list(failures.ids)
    if status != pytest.ExitCode.TESTS_FAILED or not 0 < len(failed) <= AT_MOST:
        return status
    print(f"\nOnce more, alone: {', '.join(failed)}", flush=True)
    again = subprocess.run([sys.executable, "-m", "pytest", "-q", *failed], check=False).returncode
    if again == pytest.ExitCode.OK:
        print(f"Unsteady (failed above, passed alone): {', '.join(failed)}", flush=True)
    return again


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
