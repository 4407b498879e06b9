"""What fails is run once more, alone, and told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("parallel", [(), ("-n", "2")], ids=["one", "parallel"])
def test_a_test_that_passes_alone_is_named_as_unsteady(
    tmp_path: Path, parallel: tuple[str, ...]
) -> None:
    (tmp_path / "test_some.py").write_text(STEADY + UNSTEADY)
    done = run(tmp_path, *parallel)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the first time" in done.stdout
    assert done.stdout.endswith(
        "Unsteady (failed above, passed alone): test_some.py::test_unsteady\n"
    )


def test_a_test_that_fails_twice_fails(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(STEADY + UNSTEADY + BROKEN)
    done = run(tmp_path)
    assert done.returncode == 1
    assert "Once more, alone: test_some.py::test_unsteady, test_some.py::test_broken" in done.stdout
    assert "Unsteady" not in done.stdout


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
