from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from speclaunch.checks.rules import ELSEWHERE, FAMILIES, interface
from speclaunch.checks.rules.interface import Rule
from speclaunch.checks.rules.registry import FILE_CODES, all_rules, by_code, import_checks, selected
from speclaunch.checks.rules.table import RULES
from tests.support.loops import over

ROOT = Path(__file__).resolve().parents[3]


def test_codes_and_names_are_unique() -> None:
    codes = [rule.code for rule in all_rules()] + [notice.code for notice in FILE_CODES]
    names = [rule.name for rule in all_rules()] + [notice.name for notice in FILE_CODES]
    assert len(codes) == len(set(codes))
    assert len(names) == len(set(names))
    assert len(codes) >= 50


@over(RULES, lambda rule: rule.code)
def test_the_names_of_a_rule(rule: Rule) -> None:
    assert re.fullmatch(r"SPL\d{3}", rule.code)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)


def test_by_code_or_name() -> None:
    rule = by_code("spl211")
    assert rule is not None
    assert by_code(rule.name) is rule
    assert by_code("SPL") is None


@over(RULES, lambda rule: rule.code)
def test_a_rule_of_the_table_has_its_check(rule: Rule) -> None:
    import_module(f"speclaunch.checks.rules.{rule.module}")
    check = interface.CHECKS[rule.code]
    if not isinstance(check, partial):
        assert check.__name__.removesuffix("_check") == rule.name.replace("-", "_")
        assert check.__module__ == f"speclaunch.checks.rules.{rule.module}"


def test_a_check_has_its_row() -> None:
    import_checks()
    assert interface.CHECKS.keys() == {rule.code for rule in RULES}
    across = {rule.code for rule in all_rules() if rule.check_across is not None}
    assert interface.COMPARED.keys() == across


@over(RULES, lambda rule: rule.code)
def test_a_code_is_one_of_its_familys_numbers(rule: Rule) -> None:
    is_older = rule.code in ELSEWHERE
    assert (int(rule.code[3:]) in FAMILIES[rule.family].numbers) != is_older
    assert rule.module in FAMILIES[rule.family].modules


def test_the_table_is_in_the_order_of_the_codes() -> None:
    codes = [rule.code for rule in RULES]
    assert codes == sorted(codes)


@pytest.mark.thorough
def test_a_rule_is_found_without_a_module() -> None:
    code = (
        "import sys; from speclaunch.checks.rules.registry import by_code\n"
        "assert by_code(sys.argv[1]).code == 'SPL239'\n"
        "from speclaunch.checks.rules.table import RULES\n"
        "checks = {f'speclaunch.checks.rules.{rule.module}' for rule in RULES}\n"
        "print(*(name for name in sys.modules if name in checks or name.endswith('.plan.plan')))"
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
