"""Comparison of two sides: start and warm engines, measure interleaved rounds, stop the engines.

If both engines fit at the same time, the sides take turns round by round, and the idle engine is
paused. The first side alternates. Otherwise blocks of rounds take turns (A B B A …), one engine at
a time. With several starts, this repeats for each start with new engines.
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
"""Time limit for one request of a round."""
_END_SECONDS = 10.0
WARM_UP = 2
"""Rounds discarded after each start."""


class Serving(Protocol):
    """Engine of a comparison."""

    @property
    def url(self) -> str:
        """Base URL of the server."""

    def wait(self, seconds: float) -> float:
        """Wait until the engine serves; return the elapsed seconds."""

    @property
    def attempts(self) -> int:
        """Number of engine starts so far."""

    @property
    def lives(self) -> bool:
        """True if the engine is running."""

    def pause(self) -> None:
        """Pause its processes."""

    def resume(self) -> None:
        """Resume its processes."""

    def stop(self) -> None:
        """Stop the engine."""


class Measuring(Protocol):
    """Load generator that measures rounds."""

    def measure(self, load: RoundLoad, seconds: float) -> Round:
        """Measure one round."""


Start = Callable[[EngineOrder], Serving]
Served = Callable[[EngineOrder, Serving], None]
"""Callback for each engine after its warm-up."""
Tell = Callable[[str], None]


class Schedule(Struct, frozen=True):
    """Rounds to measure: each workload at each concurrency, for one or two sides.

    `blocks`: blocks of rounds per side, one engine at a time; 0: both engines run at once.
    `starts`: engine starts per side; the rounds are divided among them.
    """

    sides: tuple[EngineOrder, ...]
    workloads: tuple[Prompts, ...]
    concurrencies: tuple[int, ...]
    rounds: int
    requests: int
    """Requests per round at a concurrency of 1; at least twice the concurrency otherwise."""
    blocks: int = 0
    starts: int = 1
    seed: int = 1
    generator: str = "sglang"
    """Name of the load generator."""

    def requests_at(self, concurrency: int) -> int:
        """Return the number of requests in a round."""
        return max(self.requests, 2 * concurrency)

    @property
    def starts_in_all(self) -> int:
        """Engine starts of both sides; the last side of a block also runs first in the next."""
        launched = sum(side.url is None for side in self.sides)
        return self.starts * (self.blocks * (launched - 1) + 1 if self.blocks else launched)

    def cells(self) -> Iterator[tuple[Prompts, int]]:
        """Yield each workload at each concurrency."""
        for prompts in self.workloads:
            for concurrency in self.concurrencies:
                yield prompts, concurrency


class Step(Struct, frozen=True):
    """A scheduled round."""

    side: EngineOrder
    prompts: Prompts
    concurrency: int
    number: int
    start: int = 0
    """Index of the engine start, from 0."""

    def is_done(self, done: Sequence[Round]) -> bool:
        """True if the round is already measured."""
        key = self.side.name, self.at, self.number
        return any((r.side, r.at, r.number) == key for r in done)

    @property
    def at(self) -> At:
        """Cell of the round."""
        return At(self.prompts.name, self.prompts.context, self.concurrency)


def steps(schedule: Schedule) -> list[Step]:
    """Return all rounds in order of measurement."""
    return [
        step
        for start in range(schedule.starts)
        for step in _steps_of(schedule, start, range(schedule.rounds)[start :: schedule.starts])
    ]


def _steps_of(schedule: Schedule, start: int, numbers: Sequence[int]) -> Iterator[Step]:
    """Yield the rounds of one start."""
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
    """Return the sides in the order of turn `number`; the first side alternates."""
    return schedule.sides if number % 2 == 0 else schedule.sides[::-1]


def measure(
    schedule: Schedule,
    start: Start,
    generator: Measuring,
    tell: Tell,
    done: Sequence[Round] = (),
    served: Served = lambda *_: None,
) -> Iterator[Round]:
    """Yield each round that is not `done` as it is measured. Stops all engines on exit.

    Raises LaunchError if an engine does not start, or ends during its rounds.
    """
    due = [step for step in steps(schedule) if not step.is_done(done)]
    with ExitStack() as stack:
        up: dict[str, Serving] = {}
        last = None
        for step in due:
            is_new_start = last is not None and last.start != step.start
            last = step
            for name in [running for running in up if is_new_start or running != step.side.name]:
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
                f"{step.side.name} exited during round {step.number + 1}",
                help="speclaunch runs show last gives the reason"
                if step.side.url is None
                else "the server was stopped or restarted; measure it again without interruption",
            )
            try:
                measured = _round(schedule, step, engine, generator, step.number)
            except LaunchError as error:
                raise (ended if _ends(engine) else error) from None
            if engine.attempts != starts or not engine.lives:
                raise ended
            yield measured


def _ends(engine: Serving) -> bool:
    """True if the engine has ended; waits briefly, because its speclaunch process notices late."""
    deadline = time.monotonic() + _END_SECONDS
    while engine.lives and time.monotonic() < deadline:
        time.sleep(0.1)
    return not engine.lives


def _warm(schedule: Schedule, step: Step, engine: Serving, generator: Measuring) -> None:
    for prompts, concurrency in schedule.cells():
        for number in range(WARM_UP):
            warm_up = Step(step.side, prompts, concurrency, -1 - number)
            _round(schedule, warm_up, engine, generator, -1 - number)


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
