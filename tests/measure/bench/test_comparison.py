"""The order of rounds, and engines that are gone whatever happens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from speclaunch.core.errors import LaunchError
from speclaunch.measure.bench.comparison import Schedule, measure, steps
from speclaunch.measure.bench.engines import EngineOrder
from speclaunch.measure.bench.load_generators import RoundLoad
from speclaunch.measure.bench.measurement import Round
from speclaunch.measure.bench.stored import key_of
from speclaunch.measure.bench.workload import Prompts
from tests.support.measure.bench.making import a_round

SCHEDULE = Schedule(
    (EngineOrder("R", ("recipe=R",), 1), EngineOrder("plain", ("recipe=R",), 2)),
    (Prompts("chat", 32, ("a", "b")),),
    (1, 8),
    4,
    4,
)


class Engines:
    """Engines that remember what was done to them."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.up: set[str] = set()
        self.running: set[str] = set()
        self.starts = 1

    def start(self, order: EngineOrder) -> _Engine:
        self.said.append(f"start {order.name}")
        self.up.add(order.name)
        self.running.add(order.name)
        return _Engine(self, order.name)


class _Engine:
    def __init__(self, engines: Engines, name: str) -> None:
        self._engines, self._name = engines, name
        self.url = f"http://{name}"

    def wait(self, seconds: float) -> float:
        return 1.0

    @property
    def attempts(self) -> int:
        return self._engines.starts

    def is_gone(self, seconds: float = 10) -> bool:
        return self._name not in self._engines.up

    def pause(self) -> None:
        self._engines.running.discard(self._name)

    def resume(self) -> None:
        self._engines.running.add(self._name)

    def stop(self) -> None:
        self._engines.up.discard(self._name)
        self._engines.running.discard(self._name)


class Measuring:
    """Notes which engines run while a round is measured."""

    def __init__(self, engines: Engines) -> None:
        self.engines = engines
        self.loads: list[RoundLoad] = []

    def measure(self, load: RoundLoad, seconds: float) -> Round:
        assert self.engines.running == {load.side}
        self.loads.append(load)
        found = a_round(load.side, load.number)
        return replace(found, concurrency=load.concurrency, context=load.prompts.context)


def measured(schedule: Schedule, engines: Engines) -> Iterator[Round]:
    return measure(schedule, engines.start, Measuring(engines), lambda _: None)


def test_the_sides_take_turns_in_changing_order() -> None:
    found = [step.side.name for step in steps(SCHEDULE) if step.concurrency == 1]
    assert found == ["R", "plain", "plain", "R", "R", "plain", "plain", "R"]


def test_blocks_are_starts_in_turn() -> None:
    found = [step.side.name for step in steps(replace(SCHEDULE, blocks=2))]
    assert found == ["R"] * 4 + ["plain"] * 8 + ["R"] * 4
    numbers = {step.number for step in steps(replace(SCHEDULE, blocks=2))}
    assert numbers == {0, 1, 2, 3}


@pytest.mark.parametrize("blocks", [0, 1, 2])
def test_each_start_has_engines_of_its_own(blocks: int) -> None:
    engines = Engines()
    schedule = replace(SCHEDULE, blocks=blocks, rounds=6, starts=3)
    told: list[str] = []
    rounds = list(measure(schedule, engines.start, Measuring(engines), told.append))
    assert len({(one.side, one.at, one.number) for one in rounds}) == len(rounds) == 24
    assert len(engines.said) == schedule.starts_in_all == (9 if blocks == 2 else 6)
    assert engines.said[0] == "start R" and engines.up == set()
    for start in range(3):
        numbers = {step.number for step in steps(schedule) if step.start == start}
        assert numbers == {start, start + 3}
    first = [next(s.side.name for s in steps(schedule) if s.start == n) for n in range(3)]
    assert first == ["R", "plain", "R"]


@pytest.mark.parametrize("blocks", [0, 2])
def test_every_round_is_measured_alone_and_nothing_is_left(blocks: int) -> None:
    engines = Engines()
    schedule = replace(SCHEDULE, blocks=blocks)
    assert len(list(measured(schedule, engines))) == 16
    assert engines.up == set()
    assert len(engines.said) == schedule.starts_in_all == (3 if blocks else 2)  # A B B A: B goes on


def test_rounds_that_are_there_are_not_measured_again() -> None:
    engines = Engines()
    rounds = list(measured(SCHEDULE, engines))
    again = Engines()
    rest = list(measure(SCHEDULE, again.start, Measuring(again), lambda _: None, rounds[:-1]))
    assert [one.side for one in rest] == [rounds[-1].side]
    assert again.said == [f"start {rounds[-1].side}"]


def test_each_context_length_is_measured_apart() -> None:
    prompts = tuple(replace(SCHEDULE.workloads[0], context=length) for length in (0, 500))
    schedule = replace(SCHEDULE, workloads=prompts)
    rounds = list(measured(schedule, Engines()))
    assert len({(one.side, one.at, one.number) for one in rounds}) == len(rounds) == 32
    assert all(step.is_done(rounds) for step in steps(schedule))
    short = [one for one in rounds if not one.context]
    due = [step for step in steps(schedule) if not step.is_done(short)]
    assert {step.at.context for step in due} == {500}


def test_what_is_measured_decides_what_goes_on() -> None:
    key = key_of([["a"]], SCHEDULE)
    prompts = (replace(SCHEDULE.workloads[0], context=500),)
    others = [
        key_of([["b"]], SCHEDULE),
        key_of([["a"]], replace(SCHEDULE, generator="aiperf")),
        key_of([["a"]], replace(SCHEDULE, workloads=prompts)),
        key_of([["a"]], replace(SCHEDULE, starts=3)),
    ]
    assert len({key, *others}) == 5


def test_a_server_that_runs_is_no_start_and_is_told_of_once() -> None:
    engines, told = Engines(), []
    one, other = SCHEDULE.sides
    schedule = replace(SCHEDULE, sides=(one, replace(other, url="http://plain", key="secret")))
    measuring = Measuring(engines)
    lines: list[str] = []
    rounds = measure(
        schedule,
        engines.start,
        measuring,
        lines.append,
        (),
        lambda order, engine: told.append((order.name, engine.url)),
    )
    assert len(list(rounds)) == 16
    assert schedule.starts_in_all == 1
    assert told == [("R", "http://R"), ("plain", "http://plain")]
    assert {load.side: load.key for load in measuring.loads} == {"R": "", "plain": "secret"}
    assert not any("plain" in line for line in lines)


def test_an_engine_that_was_started_again_ends_the_comparison() -> None:
    engines = Engines()

    class Restarting(Measuring):
        def measure(self, load: RoundLoad, seconds: float) -> Round:
            engines.starts += load.number >= 0
            return super().measure(load, seconds)

    with pytest.raises(LaunchError, match="R exited during round 1"):
        next(measure(SCHEDULE, engines.start, Restarting(engines), lambda _: None))
    assert engines.up == set()


@pytest.mark.parametrize("lives", [True, False])
def test_a_generator_that_fails_because_its_engine_ended_is_told_so(lives: bool) -> None:
    engines = Engines()

    class Failing(Measuring):
        def measure(self, load: RoundLoad, seconds: float) -> Round:
            if load.number < 0:
                return super().measure(load, seconds)
            if not lives:
                engines.up.discard(load.side)
            raise LaunchError("the load generator failed: connection refused")

    told = "the load generator failed" if lives else "R exited during round 1"
    with pytest.raises(LaunchError, match=told):
        next(measure(SCHEDULE, engines.start, Failing(engines), lambda _: None))


def test_an_interruption_leaves_no_engine() -> None:
    engines = Engines()
    rounds = measure(SCHEDULE, engines.start, Measuring(engines), lambda _: None)
    next(rounds)
    next(rounds)
    assert engines.up == {"R", "plain"}
    rounds.close()  # type: ignore[attr-defined]  # a generator
    assert engines.up == set()
