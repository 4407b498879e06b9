"""The rounds of `speclaunch bench`: engines, the generator, and every round kept as it is there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from speclaunch.bench.aiperf import Aiperf, find_aiperf, require_aiperf
from speclaunch.bench.comparison import Schedule, Serving, measure, steps
from speclaunch.bench.cost import cost_of, write
from speclaunch.bench.engines import Engine, Order, end_on_signals, next_log
from speclaunch.bench.generator import Generator
from speclaunch.bench.interpreter import Interpreter, generator_interpreter
from speclaunch.bench.keeping import Kept
from speclaunch.bench.load import Generators, LoadGenerator
from speclaunch.bench.measurement import Round
from speclaunch.bench.running import Running, RunningSide, server_info
from speclaunch.bench.sides import AnySide, Side
from speclaunch.errors import LaunchError
from speclaunch.record import record
from speclaunch.report.bench_progress import Course, progress
from speclaunch.report.console import err, err_lines


def measure_all(
    schedule: Schedule, sides: Sequence[AnySide], kept: Kept, load: Chosen
) -> list[Round]:
    """Measure what is not kept yet; every round is kept as soon as it is there."""
    rounds = list(kept.rounds)
    due = [step for step in steps(schedule) if not step.is_done(rounds)]
    if not due:
        return rounds
    if rounds:
        err_lines().print(f"going on with {kept.directory.name}: {len(rounds)} rounds are measured")
    end_on_signals()
    generator = load.begin(sides, kept.directory)
    start, served = _Starter(sides, kept), _Served(kept)
    try:
        with progress(err(), err_lines(), Course(schedule, rounds, due)) as shown:
            for found in measure(schedule, start, generator, shown.say, rounds, served):
                rounds.append(found)
                kept.write(rounds)
                shown.round(found)
    finally:
        generator.close()
    return rounds


@record
class Chosen:
    """What makes the load: `sglang` in an interpreter of the engine, or the program `aiperf`."""

    name: Generators
    interpreter: Interpreter | None
    """None where no engine is on this machine."""
    aiperf: Path | None
    tokenizer: str | None
    trusts_tokenizer: bool
    """False for one that only a running server names."""

    def begin(self, sides: Sequence[AnySide], folder: Path) -> LoadGenerator:
        """Ready to measure rounds. Raises LaunchError."""
        own = self.interpreter
        if self.aiperf is not None:
            models = {side.name: side.model for side in sides}
            return Aiperf(self.aiperf, folder, self.tokenizer, models, own)
        assert own is not None  # noqa: S101  (as chosen)
        err_lines().print("loading the engine's load generator")
        trusted = self.trusts_tokenizer
        return Generator(own.python, own.environment, folder, self.tokenizer, trusted=trusted)


def chosen(
    wanted: Generators, sides: Sequence[AnySide], engine: str | None, tokenizer: str | None
) -> Chosen:
    """What `--generator` means on this machine. Raises LaunchError where it is not there."""
    trusted = tokenizer is not None or isinstance(sides[0], Side)
    tokenizer = tokenizer or sides[0].tokenizer
    own, why = _interpreter(sides, engine)
    if wanted is Generators.AUTO:
        wanted = Generators.SGLANG if own is not None or not find_aiperf() else Generators.AIPERF
    if wanted is Generators.AIPERF:
        return Chosen(wanted, own, require_aiperf(), tokenizer, trusted)
    if why is not None:
        raise why
    return Chosen(wanted, own, None, tokenizer, trusted)


def _interpreter(
    sides: Sequence[AnySide], engine: str | None
) -> tuple[Interpreter | None, LaunchError | None]:
    """That of the first engine that is launched, else one that is found; or why there is none."""
    launched = next((side for side in sides if isinstance(side, Side)), None)
    if launched is not None:
        return Interpreter(launched.prepared.python, launched.environment), None
    try:
        return generator_interpreter(engine), None
    except LaunchError as error:
        return None, error


class _Starter:
    """Starts an engine, or takes a server as it is."""

    def __init__(self, sides: Sequence[AnySide], kept: Kept) -> None:
        self._running = {side.name: side for side in sides if isinstance(side, RunningSide)}
        self._kept = kept

    def __call__(self, order: Order) -> Serving:
        running = self._running.get(order.name)
        if running is not None:
            return Running(running)
        return Engine(order, next_log(self._kept.directory))


class _Served:
    """Keeps what an engine costs, once it is warmed up."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept

    def __call__(self, order: Order, engine: Any) -> None:
        try:
            info = server_info(engine.url, order.key or None)
        except LaunchError as error:
            err_lines().print(f"{order.name} does not tell what it costs: {error}")
            return
        write(self._kept.directory, [cost_of(order.name, info, engine.pid)])
