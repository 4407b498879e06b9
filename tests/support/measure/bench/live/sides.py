"""Engines that several measurements share, each through proxies of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from speclaunch.app.verbs.shared import lookup
from speclaunch.measure.bench.comparison import Schedule, Serving, measure
from speclaunch.measure.bench.engines import EngineOrder, MeasuredEngine
from speclaunch.measure.bench.load_generators import SglangGenerator
from speclaunch.measure.bench.measurement import Objection, Round, objections
from speclaunch.measure.bench.sides import LaunchedSide, SideOptions, baseline, candidate
from speclaunch.measure.bench.workload import workload
from speclaunch.serving.launch.runs import free_port
from tests.support.measure.bench.live.proxy import Proxy, Through

Make = Callable[[str], Through]
OURS, THEIRS = "ours", "theirs"
REQUESTS = 8


class Fronted:
    """An engine that serves already, through a proxy; `stop` ends the proxy alone."""

    def __init__(self, engine: MeasuredEngine, through: Through) -> None:
        self._engine, self._proxy = engine, Proxy(through)
        self.url = self._proxy.url

    def wait(self, seconds: float) -> float:
        """It serves already."""
        self._engine.resume()
        return 0.0

    @property
    def attempts(self) -> int:
        """Of the engine."""
        return self._engine.attempts

    def is_gone(self, seconds: float = 10) -> bool:
        """Of the engine."""
        return self._engine.is_gone(seconds)

    def pause(self) -> None:
        """Halt the engine."""
        self._engine.pause()

    def resume(self) -> None:
        """Let it go on."""
        self._engine.resume()

    def stop(self) -> None:
        """End the proxy."""
        self._engine.resume()
        self._proxy.close()


class Pair:
    """A deployment and the same without speculation, started once for many comparisons."""

    def __init__(
        self,
        recipe: str,
        folder: Path,
        against: str | None = "none",
        changes: tuple[str, ...] = (),
    ) -> None:
        """`against`: as `--against`; None: the deployment alone, for both sides. `changes`: of the
        recipe, as on a command line."""
        self._stack = ExitStack()
        asked = SideOptions((), None, lookup((), None))
        words = [f"recipe={recipe}", *changes]
        first = candidate(words, asked)
        self.sides: dict[str, LaunchedSide] = {OURS: first}
        if against is not None:
            self.sides[THEIRS] = baseline(against, words, first, asked)
        self.engines: dict[str, MeasuredEngine] = {}
        self._folder = folder
        try:
            for name, side in self.sides.items():
                engine = MeasuredEngine(side.order(free_port()), folder / f"{name}.log")
                self._stack.callback(engine.stop)
                self.engines[name] = engine
                engine.wait(600)
                engine.pause()
            self._generator = SglangGenerator(
                first.prepared.python, first.environment, folder, first.tokenizer
            )
            self._stack.callback(self._generator.close)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop all of it."""
        for engine in self.engines.values():
            engine.resume()
        self._stack.close()

    def measured(
        self,
        through: Mapping[str, tuple[str, Make]],
        rounds: int,
        *,
        concurrency: int = 4,
        requests: int = REQUESTS,
        output_tokens: int = 16,
        prompts: str = "code",
    ) -> list[Round]:
        """A comparison of two sides: of each its engine and what it passes through."""

        def start(order: EngineOrder) -> Serving:
            engine, make = through[order.name]
            for one in self.engines.values():
                one.pause()
            return Fronted(self.engines[engine], make(self.engines[engine].url))

        schedule = Schedule(
            tuple(EngineOrder(name, (), 0) for name in through),
            (workload(prompts, output_tokens, 0),),
            (concurrency,),
            rounds,
            requests,
        )
        return list(measure(schedule, start, self._generator, _quiet))

    def judged(
        self, through: Mapping[str, tuple[str, Make]], rounds: int, **words: Any
    ) -> tuple[list[Round], tuple[Objection, ...]]:
        """A comparison, and what the gate says to it: each side is to be what its name says."""
        sides = {name: self.sides.get(name, self.sides[OURS]) for name in through}
        expected = [replace(side.expected, name=name) for name, side in sides.items()]
        measured = self.measured(through, rounds, **words)
        return measured, objections(measured, expected, REQUESTS)

    def objections(
        self, through: Mapping[str, tuple[str, Make]], rounds: int
    ) -> tuple[Objection, ...]:
        """What the gate says to a comparison."""
        return self.judged(through, rounds)[1]

    def pid(self, name: str) -> int:
        """Of the engine of a side."""
        return self.engines[name].pid or 0


def _quiet(line: str) -> None:
    """What a comparison tells meanwhile is not shown."""
