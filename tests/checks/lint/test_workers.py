"""Many files, several processes: the same result, and none of them left."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from speclaunch.checks.lint import lint_files
from speclaunch.checks.lint.workers import WorkerDiedError, spread
from tests.checks.lint.linting import ALL, Place

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="by fork")


def children() -> set[int]:
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return set(map(int, found.split()))


@pytest.mark.thorough
def test_answers_come_in_order_and_once() -> None:
    before = children()
    items = list(range(100))

    def work(item: int) -> bytes:
        if item % 10 == 3:
            raise ValueError
        if item == 42:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.001 * (item % 3))
        return str(item).encode() * (1 if item % 7 else 30_000)

    with spread(items, work, 4) as answers:
        said = list(answers)
    for item, answer in zip(items, said, strict=True):
        if item == 42:
            assert isinstance(answer, WorkerDiedError) and str(answer) == "SIGKILL"
            continue
        raised = item % 10 == 3
        expected = str(item).encode() * (1 if item % 7 else 30_000)
        assert answer == (None if raised else expected), item
    assert children() == before


@pytest.mark.thorough
def test_no_process_is_left_when_the_block_is() -> None:
    before = children()
    with pytest.raises(KeyboardInterrupt), spread([1] * 9, lambda _: b"x" * 99, 3) as answers:
        assert next(answers) == b"x" * 99
        raise KeyboardInterrupt
    assert children() == before


def few_first() -> None:
    lint_files._FIRST = 1


@pytest.mark.thorough
def test_four_processes_find_the_same(place: Place) -> None:
    for number in range(12):
        (place.folder / f"recipes/more{number}.yaml").write_bytes(
            (place.folder / f"recipes/r{number % 3}.yaml").read_bytes()
        )
    fresh = place.fresh("--jobs", "1", *ALL)
    assert place.lint("--no-cache", "--jobs", "4", *ALL, before=few_first) == fresh
    assert not place.entries
    assert place.lint("--jobs", "4", *ALL, before=few_first) == fresh
    assert len(place.entries) > 20
    assert place.lint("--jobs", "4", *ALL) == fresh


@pytest.mark.thorough
def test_what_stops_a_lint_stops_it_with_processes_too(place: Place) -> None:
    place.write("recipes/speclaunch.toml", "[assumed]\n")
    fresh = place.fresh("--jobs", "1", *ALL)
    assert fresh.code == 2
    assert "unknown key" in fresh.err
    assert place.lint("--jobs", "3", *ALL, before=few_first) == fresh


@pytest.mark.thorough
def test_an_interrupt_ends_all(place: Place) -> None:
    """Ctrl-C reaches the whole group; the caller says 130 (`app/verbs/app.py`)."""

    def slow() -> None:
        few_first()
        os.setpgid(0, 0)
        check: Callable[..., object] = lint_files.LintRun._check

        def interrupted(*given: object) -> object:
            if len(list(place.home.glob("pid*"))) >= 3:
                with contextlib.suppress(FileExistsError):
                    (place.home / "once").mkdir()
                    os.killpg(0, signal.SIGINT)
            (place.home / f"pid{os.getpid()}").write_text("")
            time.sleep(0.2)
            return check(*given)

        lint_files.LintRun._check = interrupted  # type: ignore[assignment,method-assign]
        signal.signal(signal.SIGINT, signal.default_int_handler)

    place.home.mkdir()
    said = place.lint("--jobs", "3", *ALL, before=slow)
    assert "KeyboardInterrupt" in said.err
    pids = [int(path.name.removeprefix("pid")) for path in place.home.glob("pid*")]
    assert len(pids) >= 3
    for pid in pids:
        assert not Path(f"/proc/{pid}").exists()


def test_few_files_are_checked_in_one_process() -> None:
    def processes(files: int, jobs: int | None = None, *, asks: bool = False) -> int:
        lint = lint_files.LintRun((), b"", (), lambda: None, jobs=jobs, queries_engines=asks)  # type: ignore[arg-type,return-value]
        return lint.processes(files, first=lint_files._FIRST)

    assert [processes(files) for files in (0, 1, 10, 149, 299)] == [1] * 5
    assert processes(10_000) <= min(8, len(os.sched_getaffinity(0)))
    assert processes(10, 4) == 1
    assert processes(100, 4) == 4
    assert processes(79, asks=True) == 1
    assert processes(80, asks=True) == min(2, len(os.sched_getaffinity(0)))


@pytest.mark.thorough
@pytest.mark.parametrize("died", [signal.SIGSEGV, signal.SIGKILL])
def test_a_file_that_kills_its_process_is_one_problem(place: Place, died: signal.Signals) -> None:
    """The other files of that process are checked all the same."""
    for number in range(12):
        (place.folder / f"recipes/more{number}.yaml").write_bytes(
            (place.folder / f"recipes/r{number % 3}.yaml").read_bytes()
        )
    fresh = place.fresh("--jobs", "1", *ALL)

    def deadly() -> None:
        few_first()
        check: Callable[..., object] = lint_files.LintRun._check

        def killed(self: object, file: lint_files.FoundFile) -> object:
            if file.path.endswith("recipes/more5.yaml"):
                signal.signal(died, signal.SIG_DFL) if died is signal.SIGSEGV else None
                os.kill(os.getpid(), died)
            return check(self, file)

        lint_files.LintRun._check = killed  # type: ignore[assignment,method-assign]

    said = place.lint("--no-cache", "--jobs", "2", *ALL, before=deadly)
    assert said.code == 2
    assert f"not checked: the process that read the file ended with {died.name}" in said.out
    assert "--> recipes/more5.yaml:1:1" in said.out
    others = [line for line in fresh.out.splitlines() if "-->" in line and "more5" not in line]
    assert others
    assert all(line in said.out for line in others)
