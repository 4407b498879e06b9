from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from speclaunch.lint.file_codes import FILE_CODES
from speclaunch.rules import ELSEWHERE, FAMILIES
from speclaunch.rules.interface import Rule
from speclaunch.rules.registry import all_rules, by_code, defined, selected
from speclaunch.rules.rule_files import RuleFile, rule_files
from tests.loops import over

ROOT = Path(__file__).resolve().parent.parent.parent


def test_codes_and_names_are_unique() -> None:
    codes = [rule.code for rule in all_rules()] + [notice.code for notice in FILE_CODES]
    names = [rule.name for rule in all_rules()] + [notice.name for notice in FILE_CODES]
    assert len(codes) == len(set(codes))
    assert len(names) == len(set(names))
    assert len(codes) >= 50


@over(all_rules(), lambda rule: rule.code)
def test_the_names_of_a_rule(rule: Rule) -> None:
    assert re.fullmatch(r"SPL\d{3}", rule.code)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)


def test_by_code_or_name() -> None:
    rule = by_code("spl211")
    assert rule is not None
    assert by_code(rule.name) is rule
    assert by_code("SPL") is None


def test_every_module_of_rules_is_found_by_its_name() -> None:
    root = ROOT / "speclaunch" / "rules"
    packages = {path.parent.name for path in root.glob("*/__init__.py")}
    assert packages == FAMILIES.keys()
    for path in root.glob("*/*.py"):
        defines = re.search(r"^RULES?\b", path.read_text(), re.M) is not None
        named = any(
            file.module.endswith(f"{path.parent.name}.{path.stem}") for file in rule_files()
        )
        assert defines == named, path


@over(rule_files(), lambda file: file.module)
def test_a_file_has_the_codes_of_its_rules(file: RuleFile) -> None:
    codes = [rule.code for rule in file.rules()]
    assert codes == sorted(codes)
    if file.numbers[0].endswith("xx"):
        alone = {number for other in rule_files() for number in other.numbers}
        assert {code[3] for code in codes} == {file.numbers[0][0]}
        assert not {code[3:] for code in codes} & alone
    else:
        assert codes == [f"SPL{number}" for number in file.numbers]
    if file.is_single:
        assert [rule.name.replace("-", "_") for rule in file.rules()] == [file.name]


@over(rule_files(), lambda file: file.module)
def test_a_code_is_one_of_its_familys_numbers(file: RuleFile) -> None:
    family = file.module.split(".")[2]
    for rule in file.rules():
        if rule.code in ELSEWHERE:
            assert ELSEWHERE[rule.code] == family
            assert int(rule.code[3:]) not in FAMILIES[family], "no exception any more"
        else:
            assert int(rule.code[3:]) in FAMILIES[family]


def test_the_table_is_as_the_modules() -> None:
    """What the table says of a rule is what its module says; `tools/rule_pages.py` writes it."""
    modules = {rule.code: rule for file in rule_files() for rule in file.rules()}
    assert [rule.code for rule in all_rules()] == sorted(modules)
    for rule in all_rules():
        own = modules[rule.code]
        assert defined(rule) is own
        assert SpecifierSet(rule.versions) == SpecifierSet(own.versions)
        assert (rule.check_across is None) == (own.check_across is None)
        checks = {"check": own.check, "check_across": own.check_across, "compares": own.compares}
        assert replace(rule, versions=own.versions, **checks) == own, rule.code


@pytest.mark.thorough
def test_a_rule_is_found_without_a_module() -> None:
    code = (
        "import sys; from speclaunch.rules.registry import by_code\n"
        "assert by_code(sys.argv[1]).code == 'SPL239'\n"
        "print(*(name for name in sys.modules if '.spl' in name or name.endswith('.plan')))"
    )
    for asked in ("SPL239", "cpu-graph"):
        done = subprocess.run(
            [sys.executable, "-c", code, asked], capture_output=True, text=True, check=True
        )
        assert not done.stdout.split()


@over(all_rules(), lambda rule: rule.code)
def test_each_is_found_by_its_code_and_its_name(rule: Rule) -> None:
    assert by_code(rule.code) is rule
    assert by_code(rule.name) is rule


def test_the_more_exact_selection_wins() -> None:
    def codes(select: tuple[str, ...], ignore: tuple[str, ...]) -> set[str]:
        return {rule.code for rule in selected(select, ignore)}

    everything = {rule.code for rule in all_rules()}
    assert codes((), ()) == everything
    assert codes(("SPL211",), ()) == {"SPL211"}
    assert "SPL211" not in codes((), ("SPL2",))
    assert codes(("SPL211",), ("SPL2",)) == {"SPL211"}
    assert codes(("SPL2",), ("SPL211",)) == {c for c in everything if c[3] == "2"} - {"SPL211"}


@pytest.mark.thorough
def test_the_list_is_as_the_rules() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "rule_pages.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"run tools/rule_pages.py\n{done.stdout}{done.stderr}"
