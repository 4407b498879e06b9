"""Run collected tests in several processes that are forked after the collection.

Each worker of pytest-xdist collects and imports all tests itself and sends every report through
its controller: for thousands of tests of a few milliseconds that costs a third of the run.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest


class Forked:
    """A plugin of pytest: `processes` processes take one test module after the other."""

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self.reports: IO[bytes] | None = None
        """The file to which a forked process writes its reports as JSON lines."""

    def pytest_configure(self, config: pytest.Config) -> None:
        """Keep the configuration, which knows how a report is stored."""
        self.config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run all tests. None: pytest itself does, as for a failed collection."""
        if session.testsfailed or session.config.option.collectonly or self.processes < 2:
            return None
        groups: defaultdict[Path, list[pytest.Item]] = defaultdict(list)
        for item in session.items:
            groups[item.path].append(item)
        largest_first = sorted(groups.values(), key=len, reverse=True)
        reader, writer = os.pipe()
        os.write(writer, b"".join(n.to_bytes(2, "big") for n in range(len(largest_first))))
        children: dict[int, IO[bytes]] = {}
        with tempfile.TemporaryDirectory(prefix="speclaunch-reports-") as folder:
            try:
                for number in range(1, self.processes):
                    path = Path(folder, str(number))
                    self.reports = path.open("wb")
                    pid = os.fork()
                    if pid == 0:
                        os.close(writer)
                        self._child(session, _taken(reader, largest_first))
                    self.reports.close()
                    self.reports = None
                    children[pid] = path.open("rb")
                os.close(writer)
                self._run(session, _taken(reader, largest_first), list(children.values()))
                for pid in list(children):
                    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    stream = children.pop(pid)
                    _forward(session, stream)
                    if code:
                        session.shouldfail = f"a test process ended with exit code {code}"
                        raise session.Failed(session.shouldfail)
            finally:
                for pid in children:
                    os.kill(pid, signal.SIGTERM)
                    os.waitpid(pid, 0)
                os.close(reader)
        return True

    def _run(
        self, session: pytest.Session, items: Iterator[pytest.Item], others: list[IO[bytes]]
    ) -> None:
        """Run tests, and report those that other processes have run meanwhile."""
        item = next(items, None)
        while item is not None:
            following = next(items, None)
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            for stream in others:
                _forward(session, stream)
            for why, error in (
                (session.shouldfail, session.Failed),
                (session.shouldstop, session.Interrupted),
            ):
                if why:
                    raise error(why)
            item = following

    def _child(self, session: pytest.Session, items: Iterator[pytest.Item]) -> None:
        """Run tests in a forked process, and end it. Its output is the reports alone."""
        status = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            capture = session.config.pluginmanager.getplugin("capturemanager")
            if capture is not None:  # files of its own: those of the parent are shared
                capture.stop_global_capturing()
                capture.start_global_capturing()
            session.config.get_terminal_writer()._file = Path(os.devnull).open("w")  # noqa: SIM115
            self._run(session, items, [])
            status = 0
        finally:
            assert self.reports is not None
            self.reports.close()
            os._exit(status)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the report of a forked process."""
        if self.reports is not None:
            hook = self.config.hook.pytest_report_to_serializable
            data = hook(config=self.config, report=report)
            self.reports.write(json.dumps(data).encode() + b"\n")
            self.reports.flush()


def _taken(reader: int, groups: list[list[pytest.Item]]) -> Iterator[pytest.Item]:
    """Yield the tests of the modules that this process takes; each is taken once."""
    while number := os.read(reader, 2):
        yield from groups[int.from_bytes(number, "big")]


def _forward(session: pytest.Session, stream: IO[bytes]) -> None:
    """Report what another process has written. An incomplete last line is read next time."""
    while line := stream.readline():
        if not line.endswith(b"\n"):
            stream.seek(-len(line), os.SEEK_CUR)
            return
        data, config = json.loads(line), session.config
        report = config.hook.pytest_report_from_serializable(config=config, data=data)
        if isinstance(report.longrepr, list):  # JSON has no tuples
            report.longrepr = tuple(report.longrepr)
        config.hook.pytest_runtest_logreport(report=report)
