"""The two engines of a proof: started, asked, and gone at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from speclaunch.bench.engines import Engine, next_log
from speclaunch.bench.sides import Side
from speclaunch.errors import LaunchError
from speclaunch.heartbeat import beating, duration
from speclaunch.launch.address import Address
from speclaunch.launch.client import EngineClient, EngineError
from speclaunch.launch.free_port import free_port
from speclaunch.proving.answers import Server
from speclaunch.record import record

_START_SECONDS = 3600.0
_DYING_SECONDS = 10.0
"""An engine that closed its connections is gone by then, and its speclaunch with it."""

Say = Callable[[str], None]


@record
class Served:
    """An engine that serves. `requests`: how many it will be asked."""

    side: Side
    engine: Engine
    address: Address
    say: Say

    @contextmanager
    def asked(self, requests: int) -> Iterator[Callable[[int], Server]]:
        """Servers for any concurrency, which together are asked so many requests; now and then it
        is told how far that is. Raises LaunchError for an engine that gives no answer."""
        count = _Count(requests)
        try:
            with beating(self.say, lambda seconds: f"{self.side.name}: {count.text(seconds)}"):
                yield lambda level: Server(lambda: EngineClient(self.address), level, count.tick)
        except EngineError as error:
            raise self._no_answer(str(error)) from error
        except LaunchError as error:
            if self._is_gone(0.0):
                raise self._no_answer(str(error)) from error
            raise

    def _no_answer(self, said: str) -> LaunchError:
        what = "ended while it was asked" if self._is_gone(_DYING_SECONDS) else "gave no answer"
        return LaunchError(
            f"{self.side.name} {what}: {said}",
            help=f"the log says why: speclaunch diagnose {self.engine.log}",
        )

    def _is_gone(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self.engine.lives and time.monotonic() < until:
            time.sleep(0.1)
        return not self.engine.lives


class Engines:
    """Starts engines, and stops those that are left when its block ends, however it ends."""

    def __init__(self, folder: Path, say: Say) -> None:
        """`folder` gets their logs; `say` is told of the way."""
        self._folder, self._say = folder, say
        self._stack = ExitStack()
        self._begun: dict[str, Engine] = {}

    def __enter__(self) -> Engines:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def begin(self, side: Side) -> Engine:
        """Begin to start it, unless that was done."""
        if side.name not in self._begun:
            self._say(f"starting {side.name}")
            engine = Engine(side.order(free_port()), next_log(self._folder))
            self._stack.callback(engine.stop)
            self._begun[side.name] = engine
        return self._begun[side.name]

    @contextmanager
    def serving(self, side: Side) -> Iterator[Served]:
        """It serves in the block, and is stopped at its end. Raises LaunchError."""
        engine = self.begin(side)
        with beating(self._say, lambda seconds: f"{side.name}: starting for {duration(seconds)}"):
            seconds = engine.wait(_START_SECONDS)
        self._say(f"{side.name} serves after {seconds:.0f} s")
        key = side.prepared.address.api_key
        address = Address(host="127.0.0.1", port=engine.order.port, tls=False, api_key=key)
        try:
            yield Served(side, engine, address, self._say)
        finally:
            engine.stop()


class _Count:
    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0

    def tick(self) -> None:
        self._done += 1

    def text(self, seconds: float) -> str:
        done = self._done
        told = f"{done} of {self._total} requests"
        if not 0 < done < self._total:
            return told
        return f"{told}, about {duration((self._total - done) * seconds / done)} left"
