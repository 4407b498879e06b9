"""The engine's own values in a plan: for the unknown ones, and against ours."""

from __future__ import annotations

from typing import Any

from speclaunch.checks.engine_check.opinions import Opinion, with_engine_values
from speclaunch.engine.plan.effective_arguments import ArgumentOutcome, effective_arguments
from tests.checks.engine_check.scripted_judge import RELEASE, plan_of
from tests.support.loops import rows


def told(**resolved: Any) -> Opinion:
    return Opinion(RELEASE, accepted=True, resolved=resolved)


def test_what_was_unknown_is_the_engines_and_says_so() -> None:
    plan = plan_of(hardware=None)
    name = next(iter(plan.undecided))
    asked = with_engine_values(plan, told(**{name: 7}))
    assert asked.filled == (name,)
    row = next(one for one in effective_arguments(asked.plan) if one.name == name)
    assert row.outcome is not ArgumentOutcome.UNKNOWN
    assert row.effective == 7
    assert row.source == f"engine check of SGLang {RELEASE}"


def test_another_value_than_ours_is_our_defect() -> None:
    plan = plan_of("--page-size", "16")
    asked = with_engine_values(plan, told(page_size=64))
    (one,) = asked.contradictions
    assert (one.name, one.ours, one.engine) == ("page_size", 16, 64)
    assert one.report == "page_size: SGLang 0.5.23 on h200 resolves 64, speclaunch 16"
    assert asked.plan.value("page_size") == 64


@rows("engine", [16, 16.0, None, "auto", {"a": 1}])
def test_the_same_is_the_same(engine: Any) -> None:
    plan = plan_of("--page-size", "16", "--host", "0.0.0.0", "--api-key", "sk-4711ffe8")
    answer = told(page_size=engine, host="127.0.0.1", api_key="key")
    assert with_engine_values(plan, answer).plan is plan


def test_a_refusal_has_no_values() -> None:
    plan = plan_of("--page-size", "16")
    assert with_engine_values(plan, Opinion(RELEASE, resolved={"page_size": 1})).plan is plan
