"""A start that is predicted to fail is not made: other settings, or none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console

from speclaunch.app.output.launching import PlainObserver
from speclaunch.checks.rules.examine import PreflightError
from speclaunch.checks.rules.registry import all_rules
from speclaunch.deployments.recipe.load import load
from speclaunch.deployments.recipe.schema import Recovery, RecoveryPolicy
from speclaunch.deployments.targets.prepare import prepare
from speclaunch.engine.facts.facts import Facts
from speclaunch.engine.facts.hardware import declare
from speclaunch.engine.plan.budget import Fit, MemoryBudget, MemoryPhase
from speclaunch.engine.plan.memory.budget import budget
from speclaunch.engine.plan.plan import Plan
from speclaunch.serving.launch.launch_run import LaunchRun
from speclaunch.serving.launch.preflight import require_predicted_fit
from speclaunch.serving.launch.session import Session, predict_failure
from tests.support.engine.plan.memory.sized import plan_of, published


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path / "home"))


TARGET = published("meta-llama/Meta-Llama-3.1-8B (base)")
TOO_SMALL = "++args.mem_fraction_static=0.6"
"""Of 24 GB; the weights alone are 16."""


def session(*overrides: str, hardware: str = "rtx4090:1", **given: Any) -> Session:
    ready = prepare(load("ngram_qwen7b", list(overrides)), "0.5.23", dry_run=True)
    return Session(ready, Facts(TARGET, None, declare(hardware)), overrides, **given)


@pytest.mark.thorough
def test_it_begins_with_what_is_predicted_to_fit() -> None:
    one = session(TOO_SMALL, "recovery=default")
    assert budget(one.plan_with({})).fit is Fit.FAILS
    rung = one.predicted_rung()
    assert rung is not None
    assert rung.changes["mem_fraction_static"] > 0.7
    assert "it is predicted to fail at 'allocate KV cache'" in rung.why
    assert budget(one.plan_with(rung.changes)).fit is Fit.FITS
    assert rung.predicted is not None and rung.predicted.fit is Fit.FITS


@pytest.mark.thorough
def test_as_it_is_written_where_that_was_asked_for_or_fits() -> None:
    assert session(TOO_SMALL, "recovery=default", as_configured=True).predicted_rung() is None
    assert session("++args.mem_fraction_static=0.85", "recovery=default").predicted_rung() is None
    assert session(TOO_SMALL, "recovery=default", "recovery.policy=order").predicted_rung() is None
    unknown = session(TOO_SMALL, "recovery=default")
    assert replace(unknown, facts=Facts(None, None, declare("rtx4090"))).predicted_rung() is None


@pytest.mark.thorough
def test_what_has_served_goes_first() -> None:
    from speclaunch.serving.launch import journal

    one = session(TOO_SMALL, "recovery=default")
    journal.remember(one._key, {"mem_fraction_static": 0.9}, "run", 1)
    assert one.known_good() is not None
    assert one.predicted_rung() is None
    assert replace(one, fresh=True).predicted_rung() is not None


@pytest.mark.thorough
def test_without_recovery_it_is_refused() -> None:
    rules = all_rules()
    with pytest.raises(PreflightError) as caught:
        require_predicted_fit(session(TOO_SMALL, "recovery=off"), rules)
    (problem,) = caught.value.problems
    assert "was not started: it is predicted to fail at 'allocate KV cache'" in problem.message
    assert "mem_fraction_static=" in (problem.help or "") and "--force" in (problem.help or "")
    require_predicted_fit(session(TOO_SMALL, "recovery=default"), rules)
    require_predicted_fit(session("++args.mem_fraction_static=0.85", "recovery=off"), rules)
    ignored = [rule for rule in rules if rule.code != "SPL711"]
    require_predicted_fit(session(TOO_SMALL, "recovery=off"), ignored)


@pytest.mark.thorough
def test_the_forecast_goes_on_from_the_first_start() -> None:
    one = session(TOO_SMALL, "recovery=default")
    rungs, _ = one.forecast()
    first = one.predicted_rung()
    assert first is not None and rungs
    assert rungs[0].changes["mem_fraction_static"] < first.changes["mem_fraction_static"]


def _fails(_: Plan) -> MemoryBudget:
    return MemoryBudget(Fit.FAILS, "too little", MemoryPhase.KV_POOL)


@pytest.mark.parametrize("policy", list(RecoveryPolicy))
def test_nothing_that_fits(policy: RecoveryPolicy) -> None:
    def plan_with(_: Mapping[str, Any]) -> Plan:
        return plan_of(TARGET, "")

    found = predict_failure(Recovery(policy=policy), plan_with, _fails)
    assert found is not None and found.rung is None
    assert "no settings are predicted to fit" in found.help


@pytest.mark.thorough
def test_a_launch_says_it_and_writes_it_down(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A whole launch of a stand-in for the engine: the first attempt has the rung."""
    from speclaunch.serving.launch.supervisor import Ending, EngineOutcome, EngineSpec

    orders: list[EngineSpec] = []

    def run(self: Any, changes: Mapping[str, Any], rung: object = None) -> Any:
        from speclaunch.serving.launch.attempts import Conclusion

        order = self.order(1, changes)
        orders.append(order)
        self.observer.attempt(1, changes, rung)
        return Conclusion(EngineOutcome(Ending.STOPPED, None, 0), order.log)

    monkeypatch.setattr("speclaunch.serving.launch.attempts.Launching.run", run)
    said = StringIO()
    one = replace(session(TOO_SMALL, "recovery=default"), directory=tmp_path)
    observer = PlainObserver(Console(file=said, width=500), lambda *_: None)
    LaunchRun(one.start(), one).run(observer)
    assert "note: as configured, it is predicted to fail at 'allocate KV cache'" in said.getvalue()
    assert "starting with" in said.getvalue() and "--force" in said.getvalue()
    journal = json.loads((tmp_path / "journal.json").read_text())
    (attempt,) = journal["attempts"]
    assert attempt["changes"]["mem_fraction_static"] > 0.7
    assert "is predicted to fail" in attempt["rung"]["why"]
    words = list(orders[0].argv)
    fraction = float(words[words.index("--mem-fraction-static") + 1])
    assert fraction == attempt["changes"]["mem_fraction_static"]
