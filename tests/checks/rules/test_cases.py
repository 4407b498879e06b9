"""Every rule has cases that fail, pass and are fixed; its own fix makes a failing case pass."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from speclaunch.app.verbs.rules import explained
from speclaunch.checks.rules.interface import Fix, Rule
from speclaunch.checks.rules.registry import by_code
from speclaunch.checks.rules.table import RULES
from speclaunch.engine.releases.renames import canonical
from tests.support.checks.rules.harness import CASES, Case, complaint, load_cases, verdict
from tests.support.checks.rules.mutating import statements_of
from tests.support.loops import each, over

FILES = sorted(CASES.glob("*.yaml"))
of_each_rule = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


@cache
def rule_of(code: str) -> Rule:
    found = by_code(code)
    assert found is not None, f"no rule {code}"
    return found


def name_of(case: Case) -> str:
    return case.name


@pytest.mark.thorough
@of_each_rule
def test_cases(path: Path) -> None:
    def check(case: Case) -> None:
        wrong = complaint(rule_of(case.code), case)
        assert wrong is None, wrong

    each(load_cases(path), check, name_of)


@pytest.mark.thorough
@over(RULES, lambda rule: rule.code)
def test_a_rule_has_its_cases(rule: Rule) -> None:
    path = CASES / f"{rule.code}.yaml"
    assert path.exists(), f"no cases for {rule.code} {rule.name}"
    names = [case.name for case in load_cases(path)]
    for kind in ("fail", "pass", "fixed"):
        assert any(name.startswith(kind) for name in names), f"{rule.code} has no {kind} case"


@pytest.mark.thorough
@over(RULES, lambda rule: rule.code)
def test_its_page_tells_every_severity(rule: Rule) -> None:
    """Those in its code are those that it declares, each with when."""
    own, needed = (
        set(re.findall(r"Severity\.([A-Z]+)", "".join(map(ast.unparse, statements))))
        for statements in (statements_of(rule, alone=True), statements_of(rule, alone=False))
    )
    declared = {severity.name for severity in (rule.severity, *rule.also)}
    assert own <= declared
    assert {severity.name for severity in rule.also} <= needed
    text = explained(rule)
    for severity, when in rule.also.items():
        assert f"; {severity.value} {when}" in text


def fixed(case: Case, fix: Fix) -> Case:
    args: dict[str, Any] = {
        canonical(name) if canonical(name) in fix.set else name: value
        for name, value in case.args.items()
    }
    args |= {name: value for name, value in fix.set.items() if value is not None or name in args}
    env = {**case.env, **fix.env}
    return replace(
        case,
        args={name: value for name, value in args.items() if value is not None},
        env={name: value for name, value in env.items() if value is not None},
    )


@pytest.mark.thorough
@of_each_rule
def test_its_own_fix_works(path: Path) -> None:
    def check(case: Case) -> None:
        rule = rule_of(case.code)
        for finding in verdict(rule, case).findings:
            if finding.fix is not None and (finding.fix.set or finding.fix.env):
                left = verdict(rule, fixed(case, finding.fix)).findings
                assert finding.message not in [f.message for f in left], finding.fix

    failing = [case for case in load_cases(path) if case.fails and not case.argv]
    if failing:
        each(failing, check, name_of)
