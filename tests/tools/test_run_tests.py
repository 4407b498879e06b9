"""What fails is run once more, alone, and reported; other commands run next to the tests."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.thorough
TOOL = Path(__file__).parents[2] / "tools" / "run_tests.py"
STEADY = "def test_one():\n    pass\n"
BROKEN = "def test_broken():\n    assert False\n"
UNSTEADY = """
from pathlib import Path

def test_unsteady():
    seen = Path("seen")
    if not seen.exists():
        seen.touch()
        assert False, "the first time"
"""


def run(where: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TOOL), "-q", "-p", "no:cacheprovider", *words],
        cwd=where,
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.mark.parametrize(
    "parallel", [(), ("-n", "2"), ("--processes", "2")], ids=["one", "xdist", "forked"]
)
def test_a_test_that_passes_alone_is_named_as_unsteady(
    tmp_path: Path, parallel: tuple[str, ...]
) -> None:
    (tmp_path / "test_some.py").write_text(STEADY + UNSTEADY)
    done = run(tmp_path, *parallel)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the first time" in done.stdout
    _, _, last = done.stdout.partition(
        "Unsteady (failed above, passed alone): test_some.py::test_unsteady\n"
    )
    assert last.splitlines()[-1].startswith("1 passed")  # the report of pytest is the end


def test_a_test_that_fails_twice_fails(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(STEADY + UNSTEADY + BROKEN)
    done = run(tmp_path)
    assert done.returncode == 1
    assert "Once more, alone: test_some.py::test_unsteady, test_some.py::test_broken" in done.stdout
    assert "Unsteady" not in done.stdout


MEETING = """
import os, time
from pathlib import Path
import pytest

def met():
    Path("{own}.part").write_text(str(os.getpid()))
    Path("{own}.part").rename("{own}")
    while not Path("{other}").exists():
        time.sleep(0.01)
    return int(Path("{other}").read_text())
"""
"""Each of two modules waits for the other one: both must run at the same time."""


def write_meeting(where: Path, test: str) -> None:
    for own, other in (("a", "b"), ("b", "a")):
        text = MEETING.format(own=own, other=other) + test.format(own=own)
        (where / f"test_{own}.py").write_text(text)


def test_forked_processes_report_everything(tmp_path: Path) -> None:
    write_meeting(
        tmp_path,
        """
def test_meets():
    assert met() != os.getpid()

@pytest.mark.skip(reason="not in {own}")
def test_skipped():
    pass

def test_fails():
    print("printed by {own}")
    assert 0, "wrong in {own}"
""",
    )
    done = run(tmp_path, "--processes", "2", "-rs")
    assert done.returncode == 1
    for own in "ab":
        assert done.stdout.count(f"E       AssertionError: wrong in {own}\n") == 2  # and alone
        assert f"printed by {own}\n" in done.stdout
        assert f"not in {own}" in done.stdout
    assert "2 failed, 2 passed, 2 skipped" in done.stdout


def test_a_forked_process_that_dies_fails_the_run(tmp_path: Path) -> None:
    write_meeting(
        tmp_path,
        """
def test_dies_in_the_child():
    if met() == os.getppid():
        os._exit(3)

def test_another():
    pass
""",
    )
    done = run(tmp_path, "--processes", "2")
    assert done.returncode == 1
    assert "a test process ended with exit code 3" in done.stdout


def test_many_failures_are_not_run_again(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(
        "".join(f"def test_{n}():\n    assert False\n" for n in range(11))
    )
    done = run(tmp_path)
    assert done.returncode == 1
    assert "Once more" not in done.stdout


@pytest.mark.parametrize(
    "text, status",
    [(STEADY, 0), ("import no_such_module\n", 2), ("", 5)],
    ids=["ok", "error", "no"],
)
def test_the_exit_status_is_that_of_pytest(tmp_path: Path, text: str, status: int) -> None:
    (tmp_path / "test_some.py").write_text(text)
    assert run(tmp_path).returncode == status


def test_what_runs_next_to_the_tests_fails_the_run_with_its_output(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(STEADY)
    for code, status in (("print('well')", 0), ("print('a wrong line'); raise SystemExit(3)", 1)):
        done = run(tmp_path, "--beside", f'lint={sys.executable} -c "{code}"')
        assert done.returncode == status, done.stdout + done.stderr
        assert ("a wrong line" in done.stdout) == bool(status)
        assert re.search(r"^lint +\d+  next to the tests$", done.stdout, re.M)
        assert done.stdout.splitlines()[-1].startswith("1 passed")


def test_what_runs_next_to_the_tests_ends_with_them(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text("import no_such_module\n")
    pid = tmp_path / "pid"
    code = f"import os, time; open('{pid}', 'w').write(str(os.getpid())); time.sleep(60)"
    words = ["-q", "--beside", f'long={sys.executable} -c "{code}"']
    begun = subprocess.Popen([sys.executable, str(TOOL), *words], cwd=tmp_path)
    while not (pid.is_file() and pid.read_text()):
        time.sleep(0.05)
    begun.terminate()
    begun.wait(60)
    assert not psutil.pid_exists(int(pid.read_text()))
