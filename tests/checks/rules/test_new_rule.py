"""tools/new_rule.py: skeletons that the tests refuse until they are filled in."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from msgspec.structs import replace

from speclaunch.checks.rules import FAMILIES
from speclaunch.checks.rules.interface import no_verdict, parsed
from speclaunch.checks.rules.table import RULES
from tests.support.checks.rules.harness import complaint, load_cases

TOOL = Path(__file__).resolve().parents[3] / "tools" / "new_rule.py"


def loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    return loaded(TOOL)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The modules of rules, to be changed."""
    rules = Path("speclaunch/checks/rules")
    shutil.copytree(TOOL.parents[1] / rules, tmp_path / rules)
    return tmp_path


def test_it_makes_a_row_a_check_a_page_and_cases(tool: Any, copy: Path) -> None:
    before = {path: path.read_text() for path in copy.rglob("*.py")}
    assert tool.main(["SPL298", "two-batch-overlap", "--family", "features"], copy) == 0
    changed = {path.name: path for path, text in before.items() if path.read_text() != text}
    assert changed.keys() == {"kernels.py", "table.py"}
    codes = [rule.code for rule in loaded(changed["table.py"]).RULES]
    assert "SPL298" in codes
    assert codes == sorted(codes)
    added = changed["kernels.py"].read_text().removeprefix(before[changed["kernels.py"]])
    assert '@rule("SPL298")' in added
    assert "def two_batch_overlap(plan: Plan)" in added
    page = parsed((copy / "docs/rules/SPL298.md").read_text())
    assert page.title == "SPL298 two-batch-overlap"
    # nothing of it passes unchanged
    cases = load_cases(copy / "tests/checks/rules/cases/SPL298.yaml")
    assert [case.name.partition("_")[0] for case in cases] == ["fail", "fixed", "pass"]
    silent = replace(RULES[0], code="SPL298", check=no_verdict)
    assert complaint(silent, cases[0])
    for text in (added, *(path.read_text() for path in copy.rglob("SPL298*"))):
        assert "TODO" in text


def test_a_kind_of_change_has_no_check(
    tool: Any, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (copy / "speclaunch/checks/rules/arguments.py").read_text()
    assert tool.main(["SPL948", "something-else-off", "--family", "changes"], copy) == 0
    assert (copy / "speclaunch/checks/rules/arguments.py").read_text() == before
    assert "speclaunch/checks/rules/arguments.py: add the kind" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("code", "name", "family", "said"),
    [
        ("SPL239", "new", "features", "SPL239 is cpu-graph: SPL2"),
        ("SPL093", "new", "arguments", "SPL093 is not-understood"),
        ("SPL913", "new", "changes", "SPL913 is retired"),
        ("spl298", "new", "features", "'spl298' is no code: write SPL and three digits: SPL2"),
        ("SPL2980", "new", "features", "is no code"),
        ("SPL298", "New", "features", "'New' is no name"),
        ("SPL298", "new_rule", "features", "is no name"),
        ("SPL298", "new-", "features", "is no name"),
        ("SPL298", "cpu-graph", "features", "another rule is called cpu-graph"),
        ("SPL298", "new", "scheduler", "no family is called 'scheduler': take one of arguments"),
        ("SPL298", "new", "attention", "attention has the numbers 301 to 399: SPL3"),
        ("SPL300", "new", "features", "features has the numbers 201 to 299"),
    ],
)
def test_it_refuses(
    tool: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    code: str,
    name: str,
    family: str,
    said: str,
) -> None:
    with pytest.raises(SystemExit) as stopped:
        tool.main([code, name, "--family", family], tmp_path)
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("family", FAMILIES)
def test_the_free_code_is_one_that_it_takes(tool: Any, family: str) -> None:
    tool.check(tool._free(family), "a-name-of-its-own", family)
