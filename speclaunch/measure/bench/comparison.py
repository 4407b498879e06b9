"""A comparison of two sides: engines started, warmed, measured in interleaved rounds, stopped.

Where both engines can be up at once, the sides take turns round by round, and the one that waits
is halted; which one begins changes with every round. Else blocks of rounds take turns (A B B A …),
one engine at a time. With several starts all of that happens once a start, with new engines.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Protocol

from msgspec import Struct

from speclaunch.core import LaunchError
from speclaunch.measure.bench.engines import EngineOrder
from speclaunch.measure.bench.generator import RoundLoad
from speclaunch.measure.bench.measurement import At, Round
from speclaunch.measure.bench.workload import Prompts

_START_SECONDS = 3600.0
_SECONDS_EACH = 120.0
"""For one request of a round, at most."""
_END_SECONDS = 10.0
WARM_UP = 2
"""Rounds that are thrown away after each start."""


class Serving(Protocol):
    """An engine as a comparison needs it."""

    @property
    def url(self) -> str:
        """Where it serves."""

    def wait(self, seconds: float) -> float:
        """Until it serves."""

    @property
    def attempts(self) -> int:
        """How often it was started."""

    @property
    def lives(self) -> bool:
        """Whether it is there."""

    def pause(self) -> None:
        """Halt it."""

    def resume(self) -> None:
        """Let it go on."""

    def stop(self) -> None:
        """End it."""


class Measuring(Protocol):
    """What measures a round."""

    def measure(self, load: RoundLoad, seconds: float) -> Round:
        """One round."""


Start = Callable[[EngineOrder], Serving]
Served = Callable[[EngineOrder, Serving], None]
"""Told of an engine when it was warmed up."""
Tell = Callable[[str], None]


class Schedule(Struct, frozen=True):
    """What is measured: rounds of each workload at each concurrency, of both sides or of one.

    `blocks`: blocks of rounds of each side, one engine at a time; 0: both sides are up at once.
    `starts`: how often each side is started anew; the rounds are divided among the starts.
    """

    sides: tuple[EngineOrder, ...]
    workloads: tuple[Prompts, ...]
    concurrencies: tuple[int, ...]
    rounds: int
    requests: int
    """Of one round at a concurrency of 1; a higher one has at least twice its own number."""
    blocks: int = 0
    starts: int = 1
    seed: int = 1
    generator: str = "sglang"
    """What makes the load."""

    def requests_at(self, concurrency: int) -> int:
        """How many requests a round has."""
        return max(self.requests, 2 * concurrency)

    @property
    def starts_in_all(self) -> int:
        """Of both sides: the side that ends a block begins the next one."""
        launched = sum(side.url is None for side in self.sides)
        return self.starts * (self.blocks * (launched - 1) + 1 if self.blocks else launched)

    def cells(self) -> Iterator[tuple[Prompts, int]]:
        """Each workload at each concurrency."""
        for prompts in self.workloads:
            for concurrency in self.concurrencies:
                yield prompts, concurrency


class Step(Struct, frozen=True):
    """A round that is due."""

    side: EngineOrder
    prompts: Prompts
    concurrency: int
    number: int
    start: int = 0
    """With the engines of which start, from 0."""

    def is_done(self, done: Sequence[Round]) -> bool:
        """Whether it was measured already."""
        key = self.side.name, self.at, self.number
        return any((r.side, r.at, r.number) == key for r in done)

    @property
    def at(self) -> At:
        """What is measured."""
        return At(self.prompts.name, self.prompts.context, self.concurrency)


def steps(schedule: Schedule) -> list[Step]:
    """All rounds, in the order in which they are measured."""
    return [
        step
        for start in range(schedule.starts)
        for step in _steps_of(schedule, start, range(schedule.rounds)[start :: schedule.starts])
    ]


def _steps_of(schedule: Schedule, start: int, numbers: Sequence[int]) -> Iterator[Step]:
    """Those of one start."""
    if schedule.blocks:
        for block in range(schedule.blocks):
            for side in _turn(schedule, start + block):
                for number in numbers[block :: schedule.blocks]:
                    for prompts, concurrency in schedule.cells():
                        yield Step(side, prompts, concurrency, number, start)
        return
    for place, number in enumerate(numbers):
        for prompts, concurrency in schedule.cells():
            for side in _turn(schedule, start + place):
                yield Step(side, prompts, concurrency, number, start)


def _turn(schedule: Schedule, number: int) -> tuple[EngineOrder, ...]:
    """The sides in the order of a turn: each begins every other one."""
    return schedule.sides if number % 2 == 0 else schedule.sides[::-1]


def measure(
    schedule: Schedule,
    start: Start,
    generator: Measuring,
    tell: Tell,
    done: Sequence[Round] = (),
    served: Served = lambda *_: None,
) -> Iterator[Round]:
    """Each round that is not `done`, as it is measured. No engine is left, however it ends.

    Raises LaunchError where an engine does not start, or does not live through its rounds.
    """
    due = [step for step in steps(schedule) if not step.is_done(done)]
    with ExitStack() as stack:
        up: dict[str, Serving] = {}
        last = None
        for step in due:
            is_new_start = last is not None and last.start != step.start
            last = step
            for name in [one for one in up if is_new_start or one != step.side.name]:
                if schedule.blocks or is_new_start:
                    tell(f"stopping {name}")
                    up.pop(name).stop()
                else:
                    up[name].pause()
            if step.side.name in up:
                up[step.side.name].resume()
            else:
                if step.side.url is None:
                    tell(f"starting {step.side.name}")
                engine = start(step.side)
                stack.callback(engine.stop)
                up[step.side.name] = engine
                seconds = engine.wait(_START_SECONDS)
                if step.side.url is None:
                    tell(f"{step.side.name} serves after {seconds:.0f} s, warming up")
                _warm(schedule, step, engine, generator)
                served(step.side, engine)
            engine = up[step.side.name]
            starts = engine.attempts
            ended = LaunchError(
                f"{step.side.name} ended in round {step.number + 1}",
                help="speclaunch runs show last tells why"
                if step.side.url is None
                else "it was stopped or started again: measure it while it is left alone",
            )
            try:
                measured = _round(schedule, step, engine, generator, step.number)
            except LaunchError as error:
                raise (ended if _ends(engine) else error) from None
            if engine.attempts != starts or not engine.lives:
                raise ended
            yield measured


def _ends(engine: Serving) -> bool:
    """Whether what failed is the engine's end: its speclaunch needs a moment to see it."""
    deadline = time.monotonic() + _END_SECONDS
    while engine.lives and time.monotonic() < deadline:
        time.sleep(0.1)
    return not engine.lives


def _warm(schedule: Schedule, step: Step, engine: Serving, generator: Measuring) -> None:
    for prompts, concurrency in schedule.cells():
        for number in range(WARM_UP):
            one = Step(step.side, prompts, concurrency, -1 - number)
            _round(schedule, one, engine, generator, -1 - number)


def _round(
    schedule: Schedule, step: Step, engine: Serving, generator: Measuring, number: int
) -> Round:
    requests = schedule.requests_at(step.concurrency)
    load = RoundLoad(
        step.side.name,
        engine.url,
        step.prompts,
        step.concurrency,
        requests,
        number,
        seed=schedule.seed + abs(number),
        key=step.side.key or "",
    )
    return generator.measure(load, 60 + _SECONDS_EACH * requests)
