"""What `make test` selects: parts, the reach of a change, and the budgets of its stages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import sampling

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
import changed_tests
import run_tests

ROOT = Path(__file__).resolve().parents[1]
FILES = {
    "speclaunch/__init__.py": "",
    "speclaunch/__main__.py": "from speclaunch.app.verbs import app\n",
    "speclaunch/app/verbs/__init__.py": "",
    "speclaunch/app/verbs/app.py": 'VERBS = ("lint:main",)\n',
    "speclaunch/app/verbs/lint.py": "from speclaunch.engine import size\n",
    "speclaunch/engine/__init__.py": "NAMES = {'plan.size': 'size'}\n",
    "speclaunch/engine/__init__.pyi": "from speclaunch.engine.plan.size import size as size\n",
    "speclaunch/serving/launch/__init__.py": "",
    "speclaunch/serving/launch/start.py": "def start():\n    return 1\n",
    "speclaunch/engine/plan/__init__.py": "",
    "speclaunch/engine/plan/size.py": '"""Sizes."""\n\ndef size():\n    return 2  # bytes\n',
    "speclaunch/engine/plan/data/table.json": "{}",
    "tests/__init__.py": "",
    "tests/test_size.py": "from speclaunch.engine.plan.size import size\n",
    "tests/test_start.py": "from speclaunch.serving.launch import start\n",
    "tests/test_sized.py": "from tests.support.engine.plan.sized import SIZES\n",
    "tests/engine/plan/test_plan.py": "def test_it(): ...\n",
    "tests/engine/plan/sizes.json": "[3]",
    "tests/support/engine/plan/sized.py": "SIZES = [2]\n",
    "tests/test_program.py": 'COMMAND = ("python", "-m", "speclaunch")\n',
    "tests/e2e/__init__.py": "",
    "tests/e2e/conftest.py": 'COMMAND = ("python", "-m", "speclaunch")\n',
    "tests/e2e/test_engine.py": "def test_it():\n    pass\n",
    "recipes/one.yaml": "name: one\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    changed_tests.record(tmp_path)
    return tmp_path


def test_a_tree_that_passed_has_no_change(tree: Path) -> None:
    assert changed_tests.touched(tree) == {}


@pytest.mark.parametrize(
    ("path", "text", "reached"),
    [
        ("speclaunch/engine/plan/size.py", "size = int\n", {"test_size": 1, "test_program": 4}),
        ("speclaunch/engine/plan/data/table.json", "[]", {"test_size": 1, "test_program": 4}),
        ("speclaunch/app/verbs/lint.py", "x = 1\n", {"test_program": 3}),
        ("speclaunch/serving/launch/start.py", "x = 1\n", {"test_start": 1, "e2e/test_engine": 2}),
        ("tests/test_size.py", "def test_that(): ...\n", {"test_size": 0}),
        ("tests/engine/plan/sizes.json", "[1]", {"test_sized": 2, "engine/plan/test_plan": 1}),
        ("speclaunch/engine/__init__.py", "NAMES = {}\n", {}),
        # no change: comments, docstrings, lines
        ("speclaunch/engine/plan/size.py", "def size():\n\n    '''New.'''\n    return 2\n", {}),
        ("speclaunch/engine/plan/size.py", "def size():\n    return 2\n'About it.'\n", {}),
    ],
)
def test_a_change_reaches_the_tests_that_import_it(
    tree: Path, path: str, text: str, reached: dict[str, int]
) -> None:
    (tree / path).write_text(text)
    assert changed_tests.touched(tree) == {f"tests/{n}.py": d for n, d in reached.items()}


@pytest.mark.parametrize(
    ("path", "text", "again"),
    [
        ("speclaunch/engine/plan/data/table.json", "[]", {"test_size", "test_program"}),
        ("speclaunch/serving/launch/start.py", "x = 1\n", {"test_start", "e2e/test_engine"}),
        ("tests/test_sized.py", "x = 1\n", {"test_sized"}),
        ("speclaunch/engine/plan/size.py", "def size():\n    return 2\n", set()),
        ("docs/a.md", "text", {"test_documents"}),
    ],
)
def test_a_result_holds_while_nothing_that_the_test_reaches_changes(
    tree: Path, path: str, text: str, again: set[str]
) -> None:
    (tree / "tests/test_documents.py").write_text('PAGE = "a.md"\n')
    (tree / "docs").mkdir()
    before = changed_tests.reached_digests(tree)
    (tree / path).write_text(text)
    after = changed_tests.reached_digests(tree)
    assert {name for name in after if after[name] != before[name]} == {
        f"tests/{name}.py" for name in again
    }


def test_a_reworded_rule_page_is_no_change(tree: Path) -> None:
    page = tree / "docs/rules/SPL001.md"
    page.parent.mkdir(parents=True)
    digests = []
    for what, example in (("reads", "a: 1"), ("checks", "a: 1"), ("reads", "a: 2")):
        page.write_text(f"# SPL001 a\n\nA.\n\n## What it does\nIt {what}.\n\n## Example\n{example}")
        digests.append([own for _, own, _ in changed_tests.read(tree)])
    assert digests[0] == digests[1] != digests[2]


def test_a_move_is_no_change(tree: Path) -> None:
    (tree / "speclaunch/engine/plan/size.py").rename(tree / "speclaunch/engine/plan/sizes.py")
    for user in ("speclaunch/engine/__init__.pyi", "tests/test_size.py"):
        text = (tree / user).read_text()
        (tree / user).write_text(text.replace("plan.size ", "plan.sizes "))
    assert changed_tests.touched(tree) == {}


def test_without_a_record_everything_is_new(tree: Path) -> None:
    (tree / changed_tests.RECORD).unlink()
    assert changed_tests.touched(tree).keys() == {
        f"tests/{name}.py"
        for name in (
            "test_size",
            "test_start",
            "test_program",
            "e2e/test_engine",
            "test_sized",
            "engine/plan/test_plan",
        )
    }


def test_ten_commits_run_every_case_once() -> None:
    names = [f"tests/test_some.py::test_it[{number}]" for number in range(1000)]
    parts = [sampling.part_of(name) for name in names]
    assert set(parts) == set(range(sampling.PARTS))
    assert max(map(parts.count, range(sampling.PARTS))) < 150
    assert sampling.part_of("the same everywhere") == 7
    dealt = list(sampling.dealt(names[:15]).values())
    assert {dealt.count(part) for part in range(sampling.PARTS)} == {1, 2}


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


@pytest.mark.thorough
def test_the_part_is_the_number_of_commits(tree: Path) -> None:
    without = run_tests.part(tree)
    assert without in range(sampling.PARTS)
    assert run_tests.part(tree) == without  # by the content
    git(tree, "init", "-q")
    for number in range(1, 4):
        git(tree, "commit", "-q", "--allow-empty", "-m", "one")
        assert run_tests.part(tree) == number


SUITE = """
import pytest

@pytest.mark.campaign
@pytest.mark.parametrize("n", range(40))
def test_case(n): pass

@pytest.mark.campaign("together")
@pytest.mark.parametrize("n", range(3))
def test_together(n): pass

def test_always(): pass

@pytest.mark.thorough
@pytest.mark.parametrize("n", range(20))
def test_thorough(n): pass

@pytest.mark.thorough
@pytest.mark.core
def test_thorough_core(): pass

@pytest.mark.e2e
def test_engine(): pass

@pytest.mark.e2e
@pytest.mark.core(1)
def test_core(): pass
"""


def pytest_on(folder: Path, suite: str, **env: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_some.py").write_text(suite)
    (folder / "conftest.py").write_text("from tests.support.sampling import pytest_configure\n")
    names = "\\n".join(f"{name}: x" for name in ("campaign", "core", "e2e", "thorough"))
    (folder / "pytest.ini").write_text(f"[pytest]\nmarkers =\n  {names}\n".replace("\\n", "\n  "))
    inherited = {name: v for name, v in os.environ.items() if not name.startswith("TESTS_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-rs", "-p", "no:cacheprovider", "test_some.py"],
        cwd=folder,
        env={**inherited, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        timeout=60,
    )


def selected(folder: Path, **env: str) -> tuple[list[str], str]:
    """The tests that ran, and the report."""
    done = pytest_on(folder, SUITE, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    return re.findall(r"::(\S+) PASSED", done.stdout), done.stdout


class Case:
    """An item of a campaign, as far as a sample looks at it."""

    def __init__(self, name: str, *marks: str) -> None:
        self.nodeid, self.marks = f"tests/test_some.py::{name}", marks

    def get_closest_marker(self, name: str) -> Any:
        return SimpleNamespace(args=()) if name in self.marks else None


@pytest.mark.parametrize(
    "marks", [("campaign",), ("campaign", "e2e", "core"), ("thorough",), ("slow",)], ids=str
)
def test_ten_samples_are_everything(marks: tuple[str, ...]) -> None:
    config = SimpleNamespace(hook=SimpleNamespace(pytest_deselected=lambda items: None))
    cases: list[Any] = [Case(f"test_it[{number}]", *marks) for number in range(25)]
    ran: list[Any] = []
    for part in range(sampling.PARTS):
        items = list(cases)
        sampling.Sample(part, {}, 0).pytest_collection_modifyitems(config, items)  # type: ignore[arg-type]
        assert len(items) < 25
        ran += items
    assert sorted(ran, key=cases.index) == cases


@pytest.mark.thorough
def test_a_sample_has_its_part_the_core_and_what_a_change_reaches(tmp_path: Path) -> None:
    everything, _ = selected(tmp_path)
    assert len(everything) == 67
    usual, said = selected(tmp_path, TESTS_PART="0")
    assert {"test_always", "test_core", "test_thorough_core"} <= set(usual)
    assert "test_engine" not in usual
    assert 0 < sum(name.startswith("test_thorough[") for name in usual) < 10
    assert len(usual) < 25
    assert "sample: part 0 of 10 of the long tests" in said
    touched = tmp_path / "touched.json"
    touched.write_text('{"test_some.py": 1}')
    ran, _ = selected(tmp_path, TESTS_PART="0", TESTS_TOUCHED=str(touched))
    assert sorted(ran) == sorted(everything)
    late, said = selected(tmp_path, TESTS_PART="0", TESTS_TOUCHED=str(touched), TESTS_UNTIL="1")
    assert late == usual
    assert "no time left: test_some.py" in said


@pytest.mark.thorough
def test_more_engine_starts_than_the_budget_are_an_error(tmp_path: Path) -> None:
    many = SUITE.replace("core(1)", f"core({sampling.ENGINE_STARTS + 1})")
    done = pytest_on(tmp_path, many, TESTS_PART="0")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert (
        f"{sampling.ENGINE_STARTS + 1} engine starts, and {sampling.ENGINE_STARTS}" in done.stderr
    )
    assert pytest_on(tmp_path, many).returncode == 0


@pytest.mark.thorough
def test_a_fast_test_that_starts_many_processes_fails(tmp_path: Path) -> None:
    suite = """
import subprocess
import pytest

def test_few():
    for _ in range(NUMBER):
        subprocess.run(["true"])

def test_many():
    for _ in range(NUMBER + 1):
        subprocess.run(["true"])

@pytest.mark.thorough
def test_thorough():
    test_many()
""".replace("NUMBER", str(sampling.FAST_PROCESSES))
    done = pytest_on(tmp_path, suite)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert re.findall(r"::(\S+) FAILED", done.stdout) == ["test_many"]
    assert f"{sampling.FAST_PROCESSES + 1} processes" in done.stdout


@pytest.mark.thorough
def test_more_fast_tests_than_the_budget_are_an_error(tmp_path: Path) -> None:
    suite = """
import pytest

@pytest.mark.parametrize("number", range(NUMBER))
def test_it(number):
    pass
""".replace("NUMBER", str(sampling.FAST_TESTS + 1))
    done = pytest_on(tmp_path, suite)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert f"{sampling.FAST_TESTS + 1} fast tests" in done.stdout
    assert done.stdout.count(" FAILED") == 1
