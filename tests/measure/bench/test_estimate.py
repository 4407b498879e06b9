"""How long still, and how long beforehand: estimates, and nothing where nothing is known."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from speclaunch.app.output.bench_progress import lines, time_line
from speclaunch.checks.rules.examine import Lookup
from speclaunch.engine.facts.facts import Checkpoint, Facts
from speclaunch.engine.plan.resolve import resolve
from speclaunch.measure.bench.comparison import (
    Schedule,
    Step,
    estimate,
    seconds_left,
    starts_due,
    steps,
)
from speclaunch.measure.bench.engines import EngineOrder
from speclaunch.measure.bench.measurement import Round
from speclaunch.measure.bench.sides import NONE, SideOptions, baseline, candidate
from speclaunch.measure.bench.workload import Prompts
from tests.support.measure.bench.making import a_round

SCHEDULE = Schedule(
    (EngineOrder("R", (), 1), EngineOrder("plain", (), 2)),
    (Prompts("chat", 32, ("a", "b")),),
    (1, 8),
    4,
    4,
)


def of(step: Step, seconds: float) -> Round:
    found = a_round(step.side.name, step.number, seconds, SCHEDULE.requests_at(step.concurrency))
    return replace(found, workload=step.prompts.name, concurrency=step.concurrency)


def test_rounds_that_are_due_take_what_those_of_their_kind_took() -> None:
    all_steps = steps(SCHEDULE)
    seconds = {("R", 1): 2.0, ("plain", 1): 3.0, ("R", 8): 5.0, ("plain", 8): 7.0}
    done = [of(step, seconds[step.side.name, step.concurrency]) for step in all_steps[:4]]
    left = seconds_left(SCHEDULE, done, all_steps[4:], 0, between=(0.5,))
    assert left == pytest.approx(3 * 17 + 12 * 0.5)
    assert seconds_left(SCHEDULE, done, [], 0) == 0


def test_a_kind_that_was_not_measured_takes_the_other_sides_or_that_of_its_tokens() -> None:
    all_steps = steps(SCHEDULE)
    first = all_steps[0]  # R at 1
    done = [of(first, 4.0)]  # 4 requests of 32 tokens in 4 seconds
    other = next(s for s in all_steps if (s.side.name, s.concurrency) == ("plain", 1))
    assert seconds_left(SCHEDULE, done, [other], 0) == pytest.approx(4.0)
    wider = next(s for s in all_steps if (s.side.name, s.concurrency) == ("R", 8))
    assert seconds_left(SCHEDULE, done, [wider], 0) == pytest.approx(16.0)


def test_nothing_is_said_before_anything_is_known() -> None:
    due = steps(SCHEDULE)
    assert seconds_left(SCHEDULE, [], due, 2) is None
    assert seconds_left(SCHEDULE, [of(due[0], 1.0)], due[1:], 1) is None
    known = seconds_left(SCHEDULE, [of(due[0], 1.0)], due[1:2], 1, starting=(20.0,))
    assert known == pytest.approx(21.0)


def test_starts_that_are_due() -> None:
    def left(schedule: Schedule, measured: int, before: int = 0) -> int:
        """Behind so many rounds, those `before` of an earlier session."""
        all_steps = steps(schedule)
        return starts_due(schedule, all_steps[before:measured], all_steps[measured:])

    assert left(SCHEDULE, 0) == 2
    assert left(SCHEDULE, 1) == 1
    assert left(SCHEDULE, 8, before=8) == 2
    blocks = replace(SCHEDULE, blocks=2)
    assert [left(blocks, number) for number in (0, 1, 4, 5, 12, 16)] == [3, 2, 2, 1, 1, 0]
    assert left(blocks, 5, before=5) == 2
    thrice = replace(SCHEDULE, rounds=6, starts=3)
    assert [left(thrice, number) for number in (0, 1, 7, 8, 9, 24)] == [6, 5, 4, 4, 3, 0]
    assert left(thrice, 8, before=8) == 4


ASKED = SideOptions((), "0.5.23", Lookup(), dry_run=True)
SMALL = Checkpoint("m", architectures=("LlamaForCausalLM",), weight_bytes=16 * 10**9)


def test_beforehand_starts_are_those_of_the_plans_and_rounds_those_of_earlier_ones() -> None:
    words = ["recipe=eagle3_llama8b"]
    ours = candidate(words, ASKED)
    plain = baseline(NONE, words, ours, ASKED)
    known = Facts(SMALL, SMALL)
    plans = {
        "R": resolve(ours.plan.request, known),
        "plain": resolve(plain.plan.request, replace(known, draft=None)),
    }
    commands = {"R": ["a", "--x"], "plain": ["a"]}
    nothing = estimate(SCHEDULE, plans, commands, [])
    assert nothing.rounds is None and nothing.seconds is None
    assert nothing.starts is not None and nothing.starts > 32  # 32 GB at 1 GB/s and more
    # 4 rounds and 2 that warm up, 4 and 16 requests of 32 tokens, two sides
    assert nothing.tokens == 2 * 6 * (4 + 16) * 32
    assert "unknown until measured" in time_line(nothing)

    rounds = [
        {"side": side, "workload": "chat", "concurrency": concurrency, "seconds": 2.0,
         "requests": [{"tokens": 100}, {"tokens": 100}]}
        for side in ("then", "base") for concurrency in (1, 8)
    ]  # fmt: skip
    earlier = {
        "name": "20261101-100000-R",
        "about": {"sides": ["then", "base"], "commands": [["a", "--x"], ["a"]]},
        "rounds": rounds,
    }
    found = estimate(SCHEDULE, plans, commands, [earlier])
    assert found.rounds == pytest.approx(found.tokens / 100)
    assert "at the speed of 20261101-100000-R" in time_line(found)
    half = {**earlier, "rounds": rounds[:2]}
    assert estimate(SCHEDULE, plans, commands, [half]).rounds is None
    other = {**earlier, "about": {"sides": ["then", "base"], "commands": [["b"], ["a"]]}}
    assert estimate(SCHEDULE, plans, commands, [other]).rounds is None


def test_a_size_that_is_unknown_is_said() -> None:
    ours = candidate(["recipe=eagle3_llama8b"], ASKED)
    plan = resolve(ours.plan.request, Facts())
    found = estimate(SCHEDULE, {"R": plan, "plain": plan}, {}, [])
    assert found.starts is None
    assert "starts: unknown" in time_line(found)
    assert lines(SCHEDULE, found)[1] == "starts:  2, both running, the waiting engine paused"
