from __future__ import annotations

from collections.abc import Iterator

from speclaunch.checks.rules.examine import BUG, check_rules
from speclaunch.checks.rules.interface import Rule, Severity, Verdict
from speclaunch.deployments.sources.requests import from_words
from speclaunch.engine.facts.facts import Facts
from speclaunch.engine.plan.plan import Plan
from speclaunch.engine.plan.resolve import resolve
from speclaunch.engine.releases.catalogue import load

PLAN = resolve(
    from_words(["--model-path", "m", "--api-key", "sk-1234"], {}, load("0.5.23")), Facts()
)


def broken(plan: Plan) -> Iterator[Verdict]:
    yield Verdict("before the stumble")
    raise TypeError("of all things")


def telling(plan: Plan) -> Iterator[Verdict]:
    yield Verdict(f"the key is {plan.value('api_key')}", at=("api_key",))


def test_a_rule_that_stumbles_hides_nothing() -> None:
    rules = [
        Rule("SPL998", "broken", Severity.ERROR, "features", broken),
        Rule("SPL999", "telling", Severity.ERROR, "features", telling),
    ]
    judgement = check_rules(PLAN, rules)
    assert [f.code for f in judgement.findings] == ["SPL998", "SPL999"]
    (unjudged,) = judgement.skipped
    assert unjudged.reason == f"{BUG}: TypeError: of all things"


def test_a_secret_does_not_get_into_a_message() -> None:
    shown = Rule("SPL999", "telling", Severity.ERROR, "features", telling)
    (finding,) = check_rules(PLAN, [shown]).findings
    assert finding.message == "the key is ***"
