"""Select what `make test` runs: a part of each campaign, and all that a change reaches.

- Tests without a marker and those marked `core` run.
- Each test marked `thorough` or `slow`, and each case of a campaign, belongs to one of ten parts, by
  the hash of its name or of the name that the mark `campaign` has. A run takes one part; ten
  successive commits run all.
- Other tests run if an import path leads from their module to a changed one, the shortest path
  first, as long as there is time. The report lists the modules that had none.

`tools/run_tests.py --sample` sets the variables below. Without them everything runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

PARTS = 10
ENGINE_STARTS = 12
"""In a run of `make test`, without what a change asks for."""
FAST_TESTS = 4_600
"""Tests without a marker: what `make test-fast` runs."""
FAST_PROCESSES = 4
"""Processes that one of them may start."""
PART, TOUCHED, UNTIL = "TESTS_PART", "TESTS_TOUCHED", "TESTS_UNTIL"
"""Environment: the part; a JSON file of test modules and distances; the end, in Unix seconds."""
PASSED = "TESTS_PASSED"
"""Environment: a file of the tests that `make test-all` need not repeat."""


def part_of(name: str) -> int:
    """Return the part of a case: the same on every machine and in every process."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % PARTS


def dealt(names: list[str]) -> dict[str, int]:
    """Return parts of equal size, for cases that cost an engine start each."""
    by_hash = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
    return {name: number % PARTS for number, name in enumerate(by_hash)}


def _name(item: pytest.Item) -> str:
    mark = item.get_closest_marker("campaign")
    return str(mark.args[0]) if mark is not None and mark.args else item.nodeid


def _is(item: pytest.Item, marker: str) -> bool:
    return item.get_closest_marker(marker) is not None


def engine_group(item: pytest.Item) -> str:
    """Return the group of a test on the engine: one worker runs those of a module."""
    module = item.nodeid.partition("::")[0].removesuffix(".py")
    return f"engine-{module.replace('/', '-')}"


class Sample:
    """A plugin of pytest: the selection of one run."""

    def __init__(self, part: int, touched: Mapping[str, int], until: float) -> None:
        self.part, self.touched, self.until = part, touched, until
        self.extra: set[str] = set()

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> Sample | None:
        """Return the sample that `tools/run_tests.py` chose; None if everything is to run."""
        if PART not in env:
            return None
        touched = json.loads(Path(env[TOUCHED]).read_text()) if TOUCHED in env else {}
        return cls(int(env[PART]), touched, float(env.get(UNTIL, "inf")))

    def pytest_report_header(self) -> str:
        """State what a repetition needs."""
        return (
            f"sample: part {self.part} of {PARTS} of the long tests ({PART}={self.part} repeats it); "
            f"{len(self.touched)} test modules reach a change"
        )

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Select, and order: what needs the engine late, what only the change asks for last."""
        starts = dealt([i.nodeid for i in items if _is(i, "e2e") and _is(i, "campaign")])
        usual, extra, left_out = [], [], []
        for item in items:
            part = starts.get(item.nodeid, part_of(_name(item)))
            is_core = _is(item, "core")
            is_long = not is_core and (_is(item, "thorough") or _is(item, "slow"))
            in_part = part == self.part or not (is_long or _is(item, "campaign"))
            if in_part and (is_core or not _is(item, "e2e")):
                usual.append(item)
            elif item.nodeid.partition("::")[0] in self.touched:
                extra.append(item)
                if _is(item, "e2e"):  # apart from the core of its module, which runs in any case
                    item.add_marker(pytest.mark.xdist_group(f"{engine_group(item)}-more"))
            else:
                left_out.append(item)
        core = [mark for item in usual if (mark := item.get_closest_marker("core"))]
        count = sum(mark.args[0] for mark in core if mark.args)
        if count > ENGINE_STARTS:
            raise pytest.UsageError(
                f"{count} engine starts, and {ENGINE_STARTS} are the budget of `make test`: "
                "share a server, or leave the test to `make test-all`"
            )
        usual.sort(key=lambda item: _is(item, "e2e"))
        extra.sort(key=lambda item: self.touched[item.nodeid.partition("::")[0]])
        self.extra = {item.nodeid for item in extra}
        items[:] = [*usual, *extra]
        config.hook.pytest_deselected(items=left_out)

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip what a change asks for when the time is up."""
        name = item.nodeid if item.nodeid in self.extra else item.nodeid.rpartition("@")[0]
        if name in self.extra and time.time() > self.until:
            pytest.skip(f"no time left: {item.nodeid.partition('::')[0]} (make test-all runs it)")


class Budget:
    """A plugin of pytest: bounds on the work of fast tests."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.refused: tuple[pytest.Item, str] | None = None
        sys.addaudithook(self._note)

    def _note(self, event: str, details: tuple[object, ...]) -> None:
        if event in ("subprocess.Popen", "os.fork", "os.posix_spawn"):
            self.started.append(str(details[0]) if details else event)

    @staticmethod
    def _is_fast(item: pytest.Item) -> bool:
        return not any(_is(item, marker) for marker in ("e2e", "slow", "thorough"))

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Have the first test fail if the budget has fewer fast tests than there are.

        A usage error would be an internal error in a worker of xdist.
        """
        if (fast := sum(map(self._is_fast, items))) > FAST_TESTS:
            self.refused = (
                items[0],
                f"{fast} fast tests, and {FAST_TESTS} are the budget of `make test-fast`: make a "
                "loop of those that differ by one value, or mark them `thorough`",
            )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Fail a fast test that starts too many processes."""
        if self.refused is not None and item is self.refused[0]:
            pytest.fail(self.refused[1])
        self.started.clear()
        yield
        if self._is_fast(item) and len(self.started) > FAST_PROCESSES:
            pytest.fail(
                f"{len(self.started)} processes, and {FAST_PROCESSES} are the budget of a fast "
                f"test: mark it `thorough`. Started: {', '.join(self.started[:9])}"
            )


class Resumed:
    """A plugin of pytest: leave out what passed in an earlier run."""

    def __init__(self, passed: Path) -> None:
        self.passed = set(passed.read_text().splitlines())

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Select what is left, with the tests on the engine last."""
        config.hook.pytest_deselected(items=[i for i in items if i.nodeid in self.passed])
        left = [item for item in items if item.nodeid not in self.passed]
        items[:] = sorted(left, key=lambda item: _is(item, "e2e"))


def pytest_configure(config: pytest.Config) -> None:
    """Register the budget, and what selects the tests of this run, if something does."""
    config.pluginmanager.register(Budget(), "budget")
    if PASSED in os.environ:
        config.pluginmanager.register(Resumed(Path(os.environ[PASSED])), "resumed")
    sample = Sample.from_environment(os.environ)
    if sample is not None:
        config.pluginmanager.register(sample, "sample")
