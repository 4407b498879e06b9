"""Comparison of two sides: start engines, measure interleaved rounds, and estimate the duration.

If both engines fit at the same time, the sides take turns round by round, and the idle engine is
paused. The side that goes first alternates. Otherwise blocks of rounds take turns (A B B A …), one
engine at a time. With several starts, this repeats for each start with new engines. The duration is
estimated before and during a comparison; without data, the estimate is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby, product
from statistics import fmean, median
from typing import Any, Protocol

from msgspec import Struct

from speclaunch.core import LaunchError
from speclaunch.engine import Plan, expected_start
from speclaunch.measure.bench.engines import EngineOrder
from speclaunch.measure.bench.load_generators import Measuring, RoundLoad
from speclaunch.measure.bench.measurement import At, Round
from speclaunch.measure.bench.workload import Prompts

_START_SECONDS = 3600.0
_SECONDS_EACH = 120.0
"""Time limit per request of a round, in seconds."""
WARM_UP = 2
"""Number of rounds per cell that are discarded after each start."""


class Serving(Protocol):
    """Interface of an engine that a comparison measures."""

    @property
    def url(self) -> str:
        """Base URL of the server."""

    def wait(self, seconds: float) -> float:
        """Wait up to `seconds` until the engine serves; return the elapsed time."""

    @property
    def attempts(self) -> int:
        """Number of engine starts so far."""

    def is_gone(self, seconds: float = ...) -> bool:
        """True if the engine has ended, or ends within `seconds`."""

    def pause(self) -> None:
        """Pause the engine's processes."""

    def resume(self) -> None:
        """Resume the engine's processes."""

    def stop(self) -> None:
        """Stop the engine."""


Start = Callable[[EngineOrder], Serving]
Served = Callable[[EngineOrder, Serving], None]
"""Callback for each engine after its warm-up."""
Tell = Callable[[str], None]


class Schedule(Struct, frozen=True):
    """Rounds to measure: each workload at each concurrency, for one or two sides.

    `blocks`: blocks of rounds per side if only one engine runs at a time, else 0.
    `starts`: engine starts per side; the rounds are divided among them.
    """

    sides: tuple[EngineOrder, ...]
    workloads: tuple[Prompts, ...]
    concurrencies: tuple[int, ...]
    rounds: int
    requests: int
    """Minimum requests per round, raised to twice the concurrency if that is more."""
    blocks: int = 0
    starts: int = 1
    seed: int = 1
    generator: str = "sglang"

    def requests_at(self, concurrency: int) -> int:
        return max(self.requests, 2 * concurrency)

    @property
    def starts_in_all(self) -> int:
        """Number of engine starts. A block begins with the last engine of the previous block."""
        launched = sum(side.url is None for side in self.sides)
        return self.starts * (self.blocks * (launched - 1) + 1 if self.blocks else launched)

    def cells(self) -> Iterator[tuple[Prompts, int]]:
        return product(self.workloads, self.concurrencies)


class Step(Struct, frozen=True):
    """A scheduled round."""

    side: EngineOrder
    prompts: Prompts
    concurrency: int
    number: int
    start: int = 0
    """Index of the engine start, from 0."""

    def is_done(self, done: Sequence[Round]) -> bool:
        key = self.side.name, self.at, self.number
        return any((r.side, r.at, r.number) == key for r in done)

    @property
    def at(self) -> At:
        return At(self.prompts.name, self.prompts.context, self.concurrency)


def steps(schedule: Schedule) -> list[Step]:
    """Return all rounds in order of measurement."""
    return [
        step
        for start in range(schedule.starts)
        for step in _steps_of(schedule, start, range(schedule.rounds)[start :: schedule.starts])
    ]


def _steps_of(schedule: Schedule, start: int, numbers: Sequence[int]) -> Iterator[Step]:
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
    """Return the sides in order, reversed if the turn's `number` is odd."""
    return schedule.sides if number % 2 == 0 else schedule.sides[::-1]


def measure(
    schedule: Schedule,
    start: Start,
    generator: Measuring,
    tell: Tell,
    done: Sequence[Round] = (),
    served: Served = lambda *_: None,
) -> Iterator[Round]:
    """Measure and yield each round that is not in `done`. Stops all engines on exit.

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
                help="`speclaunch runs show last` shows the reason"
                if step.side.url is None
                else "the server was stopped or restarted; measure it again without interruption",
            )
            try:
                measured = _round(schedule, step, engine, generator)
            except LaunchError as error:
                raise (ended if engine.is_gone() else error) from None
            if engine.attempts != starts or engine.is_gone(0):
                raise ended
            yield measured


def _warm(schedule: Schedule, step: Step, engine: Serving, generator: Measuring) -> None:
    for prompts, concurrency in schedule.cells():
        for number in range(-1, -1 - WARM_UP, -1):
            _round(schedule, Step(step.side, prompts, concurrency, number), engine, generator)


def _round(schedule: Schedule, step: Step, engine: Serving, generator: Measuring) -> Round:
    requests = schedule.requests_at(step.concurrency)
    load = RoundLoad(
        step.side.name,
        engine.url,
        step.prompts,
        step.concurrency,
        requests,
        step.number,
        seed=schedule.seed + abs(step.number),
        key=step.side.key or "",
    )
    return generator.measure(load, 60 + _SECONDS_EACH * requests)


def starts_due(schedule: Schedule, measured: Sequence[Step], due: Sequence[Step]) -> int:
    """Return the number of engine starts left for the `due` rounds.

    `measured`: rounds of this session, whose engines may still run.
    """
    up = [_engine(step) for step in measured]
    if not schedule.blocks:
        return len({_engine(step) for step in due if step.side.url is None} - set(up))
    turns = [engine for engine, _ in groupby(map(_engine, due))]
    return len(turns) - (1 if turns and up[-1:] == turns[:1] else 0)


def _engine(step: Step) -> tuple[int, str]:
    return step.start, step.side.name


def seconds_left(
    schedule: Schedule,
    done: Sequence[Round],
    due: Sequence[Step],
    starts: int,
    *,
    between: Sequence[float] = (),
    starting: Sequence[float] = (),
) -> float | None:
    """Return the estimated seconds for all due rounds; None if unknown.

    A round's estimate uses finished rounds of its cell, or without them the mean token rate.
    `starts`: starts left. `between`, `starting`: past seconds between rounds, and per start.
    """
    if not due:
        return 0.0
    if not done or (starts and not starting):
        return None
    by_kind: dict[tuple[str, At], list[float]] = {}
    for round_ in done:
        by_kind.setdefault((round_.side, round_.at), []).append(round_.seconds)
    rates = [_work(r) / r.seconds for r in done if r.seconds > 0 and _work(r)]
    total = 0.0
    for step in due:
        names = step.side.name, _other(step, done)
        same_kind = next((by_kind[n, step.at] for n in names if (n, step.at) in by_kind), None)
        if same_kind:
            total += fmean(same_kind)
        elif rates:
            requests = schedule.requests_at(step.concurrency)
            total += step.prompts.output_tokens * requests / fmean(rates)
        else:
            return None
    each = fmean(between) if between else 0.0
    return total + each * len(due) + (fmean(starting) * starts if starts else 0.0)


def _other(step: Step, done: Sequence[Round]) -> str:
    return next((r.side for r in done if r.side != step.side.name), "")


def _work(round_: Round) -> int:
    return sum(each.requested for each in round_.requests)


class TimeEstimate(Struct, frozen=True):
    """Expected duration of a comparison in seconds. Unknown parts are None."""

    starts: float | None
    rounds: float | None
    tokens: int
    """Tokens of all answers, including warm-up."""
    source: str = ""
    """Names of the comparisons that provide the rates."""

    @property
    def seconds(self) -> float | None:
        if self.starts is None or self.rounds is None:
            return None
        return self.starts + self.rounds


def estimate(
    schedule: Schedule,
    plans: Mapping[str, Plan],
    commands: Mapping[str, Sequence[str]],
    earlier: Sequence[Mapping[str, Any]],
) -> TimeEstimate:
    """Estimate the duration of a comparison that has not started.

    Plans predict the start times. `earlier` documents (oldest first) of the same commands and
    concurrency predict the round times.
    """
    work: dict[tuple[str, At], int] = {}
    for name, prompts, concurrency in _rounds(schedule):
        key = name, At(prompts.name, prompts.context, concurrency)
        tokens = prompts.output_tokens * schedule.requests_at(concurrency)
        work[key] = work.get(key, 0) + tokens
    rates = _rates(commands, earlier)
    found = {key: rates[key] for key in work if key in rates}
    rounds = None
    if len(found) == len(work):
        rounds = sum(tokens / found[key][0] for key, tokens in work.items())
    sources = dict.fromkeys(source for _, source in found.values())
    return TimeEstimate(
        _starts(schedule, plans), rounds, sum(work.values()), ", ".join(sources) if rounds else ""
    )


def _rounds(schedule: Schedule) -> Iterator[tuple[str, Prompts, int]]:
    """Yield each round's side, workload and concurrency, including warm-up."""
    for step in steps(schedule):
        yield step.side.name, step.prompts, step.concurrency
    for name in _started(schedule) * WARM_UP:
        for prompts, concurrency in schedule.cells():
            yield name, prompts, concurrency


def _started(schedule: Schedule) -> list[str]:
    if not schedule.blocks:
        return [side.name for side in schedule.sides] * schedule.starts
    return [name for (_, name), _ in groupby(map(_engine, steps(schedule)))]


def _starts(schedule: Schedule, plans: Mapping[str, Plan]) -> float | None:
    total = 0.0
    for name in _started(schedule):
        if name not in plans:  # already running
            continue
        expected = expected_start(plans[name])
        if not expected.known:
            return None
        total += expected.likely
    return total


def _rates(
    commands: Mapping[str, Sequence[str]], earlier: Sequence[Mapping[str, Any]]
) -> dict[tuple[str, At], tuple[float, str]]:
    """Return output tokens per second and their source, by side, workload and concurrency."""
    found: dict[tuple[str, At], tuple[float, str]] = {}
    for document in earlier:
        about = document.get("about") or {}
        ran = dict(zip(about.get("sides") or (), about.get("commands") or (), strict=False))
        for name, command in commands.items():
            names = [theirs for theirs, its in ran.items() if list(its) == list(command)]
            speeds: dict[tuple[str, At], list[float]] = {}
            for entry in document.get("rounds") or ():
                if entry["side"] in names and entry["seconds"] > 0:
                    tokens = sum(each["tokens"] or 0 for each in entry["requests"])
                    at = At(entry["workload"], entry.get("context", 0), entry["concurrency"])
                    speeds.setdefault((name, at), []).append(tokens / entry["seconds"])
            source = str(document.get("name") or "")
            found |= {k: (median(v), source) for k, v in speeds.items() if median(v) > 0}
    return found
