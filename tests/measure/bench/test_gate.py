"""What does not count as a measurement: each kind of broken run, and no good one."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from speclaunch.measure.bench.measurement import ExpectedSide, Round, objections
from tests.support.loops import rows
from tests.support.measure.bench.making import PLAIN, a_round

SIDES = (ExpectedSide("R", speculates=True, drafts=4), ExpectedSide("plain", speculates=False))


def measured(*more: Round, **changes: Any) -> list[Round]:
    good = [a_round("R", number) for number in range(4)]
    good += [a_round("plain", number, **PLAIN) for number in range(4)]
    return [*good, *more, *([a_round("R", 4, **changes)] if changes else ())]


BROKEN = {
    "errors": {"ok": False, "error": "Internal Server Error: scheduler died"},
    "no-tokens": {"tokens": 0, "requested": 0},
    "no-tokens: said to be all": {"characters": 0},
    "no-tokens: nothing told": {"tokens": None},
    "tokens": {"tokens": 31},
    "tokens: more": {"tokens": 33},
    "cache": {"cached": 19},
    "cache: from a store": {"engine_latency": 2.5},
    "no-drafts": {"verify_steps": 0},
    "acceptance": {"verify_steps": 3},
    "times": {"latency": 0.0},
    "times: no first token": {"first_token": 0.0},
    "requests": {"requests": 3},
}


@rows("name", BROKEN)
def test_a_broken_round_is_named(name: str) -> None:
    found = objections(measured(**BROKEN[name]), SIDES, 4)
    assert [one.kind for one in found] == [name.partition(":")[0]]
    assert "R: round 5 at concurrency 2" in found[0].message


def test_a_baseline_that_speculates_is_named() -> None:
    (found,) = objections(measured(a_round("plain", 4)), SIDES, 4)
    assert (found.kind, "must not speculate" in found.message) == ("speculates", True)


def test_an_answer_that_comes_again_was_not_generated() -> None:
    rounds = [a_round("R", number, id="a1") for number in range(4)]
    (found,) = objections(rounds, SIDES[:1], 4)
    assert (found.kind, "15 answers" in found.message) == ("cache", True)


def test_made_up_acceptance_is_a_caveat_and_no_objection() -> None:
    sides = (replace(SIDES[0], simulated="SGLANG_SIMULATE_ACC_LEN"), SIDES[1])
    assert objections(measured(), sides, 4) == ()


def test_sides_with_different_prompts_are_named() -> None:
    more = (a_round("R", 5), a_round("plain", 5, prompt=21, **PLAIN))
    (found,) = objections(measured(*more), SIDES, 4)
    assert found.kind == "prompts"


@pytest.mark.parametrize(("factor", "kinds"), [(1.2, []), (2.0, ["drift"]), (0.5, ["drift"])])
def test_a_side_that_becomes_another_is_named(factor: float, kinds: list[str]) -> None:
    rounds = [a_round("R", number, 2.0 * (factor if number > 2 else 1)) for number in range(6)]
    found = objections(rounds, SIDES[:1], 4)
    assert [one.kind for one in found] == kinds


def test_one_cause_is_told_once() -> None:
    bad = [a_round("R", number, tokens=31) for number in range(5)]
    (found,) = objections(bad, SIDES[:1], 4)
    assert "round 1" in found.message


def test_no_good_run_is_refused() -> None:
    for seed in range(40):
        random = Random(seed)
        rounds = [
            a_round(side, number, 2.0 * random.uniform(0.8, 1.25), **changes)
            for number in range(6)
            for side, changes in (("R", {}), ("plain", PLAIN))
        ]
        assert objections(rounds, SIDES, 4) == ()
