"""A rule whose decisions are changed fails one of its cases; so does a rule that says nothing.

`tests/support/checks/rules/mutating.py` says what is changed; tests/checks/rules/mutants.json holds what survives.
"""

from __future__ import annotations

import ast
from collections import Counter

import pytest
from msgspec.structs import replace

from speclaunch.checks.rules.interface import Rule
from speclaunch.checks.rules.table import RULES
from tests.support.checks.rules import mutating
from tests.support.checks.rules.edits import edits
from tests.support.checks.rules.mutating import EXEMPT, first_complaint, modules, stored, unnoticed

pytestmark = pytest.mark.slow
_REMEDY = "add a case that notices, or see campaigns/rule_mutants.py"


@pytest.mark.parametrize("module", modules(), ids=lambda name: name.rpartition(".")[2])
def test_no_further_mutant_survives(module: str) -> None:
    groups = {mutant.group for mutant in mutating.source(module).mutants}
    found = mutating.survivors(module)
    known = [(g, key) for g, keys in stored().items() if g in groups for key in keys]
    new = [one for one in found if one not in known]
    assert not new, f"{module}: {_REMEDY}:\n{new}"
    own = {(m.group, m.key) for m in mutating.source(module).mutants}
    dead = [one for one in known if one in own and one not in found]
    assert not dead, f"run python -m campaigns rule_mutants: a case notices:\n{dead}"


@pytest.mark.parametrize("module", modules(), ids=lambda name: name.rpartition(".")[2])
def test_what_says_same_either_way_is(module: str) -> None:
    lines = mutating.path_of(module).read_text().splitlines()
    marked = {number for number, line in enumerate(lines, 1) if EXEMPT in line}
    if not marked:
        return
    spared = {
        number for mutant in unnoticed(module) for number in range(mutant.number, mutant.end + 1)
    }
    assert marked <= spared, f"{module}: a case notices what is marked: {marked - spared}"


def test_the_stored_mutants_are_there() -> None:
    there = {(m.group, m.key) for module in modules() for m in mutating.source(module).mutants}
    known = {(group, key) for group, keys in stored().items() for key in keys}
    assert known
    assert not known - there, "run python -m campaigns rule_mutants: their lines are others"


def test_every_survivor_has_a_reason() -> None:
    open_ = [key for found in stored().values() for key, why in found.items() if not why.strip()]
    assert not open_, _REMEDY


def test_the_survivors_are_known_by_name() -> None:
    keys = [(m.group, m.key) for module in modules() for m in mutating.source(module).mutants]
    twice = [one for one, count in Counter(keys).items() if count > 1]
    assert not twice


def survives(rule: Rule) -> bool:
    return not first_complaint(rule)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_the_limits_of_a_rule_are_needed(rule: Rule) -> None:
    """Its versions and its algorithms: a case is outside of each."""
    if rule.versions:
        wide = replace(rule, versions="")
        wider = survives(wide)
        assert not wider or _exempt(rule, "versions"), f"{rule.code}: no case needs its versions"
    if rule.algorithms:
        assert not survives(replace(rule, algorithms=frozenset())), (
            f"{rule.code}: no case needs its algorithms"
        )
    silent = replace(rule, check=lambda _: iter(()), check_across=None)
    assert not survives(silent), rule.code


def _exempt(rule: Rule, keyword: str) -> bool:
    """True if the keyword of a row says so: `versions=">=0.5.3",  # same either way: why`."""
    row = next(row for row in mutating.rows() if ast.literal_eval(row.args[0]) == rule.code)
    lines = mutating.path_of(mutating.TABLE).read_text().splitlines()
    written = lines[row.lineno - 1 : row.end_lineno]
    return any(f"{keyword}=" in line and EXEMPT in line for line in written)


class TestTheMutants:
    """That they are what they say, on a module of our own."""

    SOURCE = '''
from dataclasses import dataclass

NAMES = ("first", "second")
BOUNDS = (("0.5.4", "name"), ("0.5.7", "other"))


def check(plan):
    """Text with 3 in it."""
    if plan.value is None or plan.value < 4:
        return
    if plan.in_versions(">=0.5.4,<0.5.11") and plan.name in ("a", "b"):
        yield f"{plan.value} of 5"
'''

    @pytest.fixture
    def found(self) -> set[tuple[str, str]]:
        lines = self.SOURCE.splitlines()
        found = edits(ast.parse(self.SOURCE))
        return {(lines[node.lineno - 1].strip(), what) for node, what, _ in found}

    @pytest.mark.parametrize(
        ("line", "what"),
        [
            ("if plan.value is None or plan.value < 4:", "condition negated"),
            ("if plan.value is None or plan.value < 4:", "Or → And"),
            ("if plan.value is None or plan.value < 4:", "operand 1 dropped"),
            ("if plan.value is None or plan.value < 4:", "operand 2 dropped"),
            ("if plan.value is None or plan.value < 4:", "Is → IsNot"),
            ("if plan.value is None or plan.value < 4:", "Lt → LtE"),
            ("if plan.value is None or plan.value < 4:", "Lt → GtE"),
            ("if plan.value is None or plan.value < 4:", "4 → 5"),
            ("if plan.value is None or plan.value < 4:", "4 → 3"),
            ('NAMES = ("first", "second")', "row 2 dropped"),
            ('BOUNDS = (("0.5.4", "name"), ("0.5.7", "other"))', "row 1 dropped"),
            ('BOUNDS = (("0.5.4", "name"), ("0.5.7", "other"))', "'0.5.7' → '0.5.8.post1'"),
            ('BOUNDS = (("0.5.4", "name"), ("0.5.7", "other"))', "'0.5.7' → '0.5.6.post2'"),
            (
                'if plan.in_versions(">=0.5.4,<0.5.11") and plan.name in ("a", "b"):',
                "'>=0.5.4,<0.5.11' → '<0.5.11'",
            ),
            (
                'if plan.in_versions(">=0.5.4,<0.5.11") and plan.name in ("a", "b"):',
                "'>=0.5.4,<0.5.11' → '>=0.5.4,<0.5.10.post1'",
            ),
            (
                'if plan.in_versions(">=0.5.4,<0.5.11") and plan.name in ("a", "b"):',
                "row 1 dropped",
            ),
        ],
    )
    def test_there_is(self, found: set[tuple[str, str]], line: str, what: str) -> None:
        assert (line, what) in found

    def test_text_and_imports_are_left_alone(self, found: set[tuple[str, str]]) -> None:
        assert not {line for line, _ in found} & {
            '"""Text with 3 in it."""',
            'yield f"{plan.value} of 5"',
        }

    def test_a_mutant_is_the_module_with_one_change(self) -> None:
        mutant = next(m for m in mutating.source(modules()[0]).mutants)
        before = mutating.dumped(mutant.module)
        with mutating.changed(mutant):
            assert mutating.dumped(mutant.module) != before
        assert mutating.dumped(mutant.module) == before
