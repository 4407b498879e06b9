"""Start an engine, follow it until it is ready, check it, and stay until it ends."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Protocol

from speclaunch.engine.command import Spelling
from speclaunch.launch.client import Address, EngineClient
from speclaunch.launch.failure import dead_process, last_error, read_tail
from speclaunch.launch.phases import Phase, PhaseTracker, Step
from speclaunch.launch.process import EngineProcess
from speclaunch.launch.verify import Verification, verify
from speclaunch.recipe.schema import Launch

_STARTING_SECONDS = 0.1
"""How often a starting engine is looked at."""
_SERVING_SECONDS = 1.0
_HEALTH_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Order:
    """Everything needed to run one engine."""

    argv: Sequence[str]
    env: Mapping[str, str]
    log: Path
    address: Address
    asked: Spelling
    settings: Launch
    secrets: Sequence[str] = ()
    private_files: Sequence[Path] = ()
    """Files with secrets, deleted as soon as the engine has read them."""
    smoke: bool = False
    """Stop as soon as the engine was checked."""


class Ending(StrEnum):
    """How a launch ended."""

    FAILED = "failed"
    """The engine never became ready, or does not serve what was asked."""
    DIED = "died"
    """It was serving, and ended by itself."""
    STOPPED = "stopped"
    """It was serving, and was stopped because we were asked to (SIGTERM, or a smoke test)."""
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a launch, with the reason where it is not a good one."""

    ending: Ending
    reason: str | None = None
    engine_exit_code: int | None = None
    verification: Verification | None = None
    steps: tuple[Step, ...] = ()
    ready_seconds: float | None = None


class Observer(Protocol):
    """Is told what happens; shows it to somebody."""

    def spawned(self, pid: int | None, log: Path) -> None:
        """The engine process was started."""

    def progress(self, tracker: PhaseTracker, seconds: float) -> None:
        """Called several times a second while the engine starts."""

    def output(self, lines: Sequence[str]) -> None:
        """The engine printed these lines."""

    def ready(self, verification: Verification | None, seconds: float) -> None:
        """The engine is ready and was checked."""

    def stopping(self, why: str) -> None:
        """The engine is being stopped."""

    def warn(self, text: str) -> None:
        """Something is not as it should be, and the engine runs on."""


class _Undisturbed:
    """An observer whose terminal may go away: that must not take the engine down."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def tell(self, call: Callable[[Observer], None]) -> None:
        """Call the observer, unless it can no longer show anything."""
        try:
            call(self._observer)
        except (OSError, ValueError):  # the terminal was closed, its pipe has no reader
            return


class Interrupts:
    """SIGINT, SIGTERM and SIGHUP while an engine runs: noted, not raised."""

    _NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.received: list[signal.Signals] = []
        self.wake, self._notify = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(self._notify, False)

    def __enter__(self) -> Interrupts:
        self._before = {number: signal.signal(number, self._note) for number in self._NUMBERS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self.wake)
        os.close(self._notify)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.received.append(signal.Signals(number))
        os.write(self._notify, b"!")


class Follower:
    """Reads what has been added to a growing log file, by whole lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""

    def lines(self) -> list[str]:
        """The lines that were completed since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return []
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        return [line.decode(errors="replace") for line in lines if line]


class _Prober(threading.Thread):
    """Waits for the engine's health and checks it, off the main thread."""

    def __init__(self, order: Order) -> None:
        super().__init__(name="speclaunch-prober", daemon=True)
        self._order = order
        self._stop_asked = threading.Event()
        self.healthy = threading.Event()
        self.done = threading.Event()
        self.verification: Verification | None = None

    def run(self) -> None:
        with EngineClient(self._order.address) as client:
            while not client.healthy():
                if self._stop_asked.wait(_HEALTH_SECONDS):
                    return
            self.healthy.set()
            if self._order.settings.verify.enabled:
                self.verification = verify(client, self._order.asked, self._order.settings.verify)
        self.done.set()

    def stop(self) -> None:
        self._stop_asked.set()


def supervise(order: Order, observer: Observer) -> Outcome:
    """Run one engine to its end. Whatever happens, no process of it is left afterwards."""
    with (
        Interrupts() as interrupts,
        EngineProcess(
            order.argv,
            order.env,
            order.log,
            grace_seconds=order.settings.grace_seconds,
            secrets=order.secrets,
            private_files=order.private_files,
        ) as engine,
    ):
        run = _Run(order, observer, interrupts, engine)
        outcome = run.start()
        if outcome is None:
            outcome = run.serve()
        return outcome


class _Run:
    """One engine between its spawn and its end."""

    def __init__(
        self, order: Order, observer: Observer, interrupts: Interrupts, engine: EngineProcess
    ) -> None:
        self._order = order
        self._tell = _Undisturbed(observer).tell
        self._log_error: str | None = None
        self._interrupts = interrupts
        self._engine = engine
        self._tracker = PhaseTracker()
        self._follower = Follower(order.log)
        self._spawned = time.monotonic()
        self._verification: Verification | None = None
        self._ready_seconds: float | None = None

    def start(self) -> Outcome | None:
        """Follow the engine until it is checked; the outcome if it comes to nothing."""
        prober = _Prober(self._order)
        prober.start()
        told = False
        try:
            while not prober.done.is_set():
                self._engine.poll(_STARTING_SECONDS, wake=self._interrupts.wake)
                if not told and self._engine.pid is not None:
                    told = True
                    self._tell(lambda o: o.spawned(self._engine.pid, self._order.log))
                self._read_log()
                if prober.healthy.is_set() and self._ready_seconds is None:
                    self._ready_seconds = self._seconds
                    for path in self._order.private_files:
                        path.unlink(missing_ok=True)
                    self._tracker.enter(Phase.READY, self._seconds)
                self._tell(lambda o: o.progress(self._tracker, self._seconds))
                failed = self._failed_start()
                if failed is not None:
                    return failed
        finally:
            prober.stop()
        self._verification = prober.verification
        seconds = self._ready_seconds or self._seconds
        self._tell(lambda o: o.ready(self._verification, seconds))
        if self._verification is not None and not self._verification.ok:
            return self._stop(Ending.FAILED, "; ".join(self._verification.problems))
        if self._order.smoke:
            return self._stop(Ending.STOPPED, None)
        return None

    def serve(self) -> Outcome:
        """Stay until the engine ends or we are asked to stop."""
        while self._engine.running:
            self._engine.poll(_SERVING_SECONDS, wake=self._interrupts.wake)
            self._read_log()
            if self._interrupts.received:
                interrupted = self._interrupts.received[0] is signal.SIGINT
                return self._stop(Ending.INTERRUPTED if interrupted else Ending.STOPPED, None)
        return self._end(Ending.DIED, self._why_it_ended())

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._spawned

    def _read_log(self) -> None:
        if self._engine.log_error != self._log_error:
            self._log_error = self._engine.log_error
            if self._log_error:
                text = f"the engine's log cannot be written: {self._log_error}"
                self._tell(lambda o: o.warn(text))
        lines = self._follower.lines()
        for line in lines:
            self._tracker.feed(line, self._seconds)
        if lines:
            self._tell(lambda o: o.output(lines))

    def _why_it_ended(self) -> str:
        if self._engine.guard_lost:
            return "its guard process was killed, and the engine with it"
        tail = read_tail(self._order.log)
        code = self._engine.exit_code
        return last_error(tail) or dead_process(tail) or describe_exit(code)

    def _failed_start(self) -> Outcome | None:
        if self._interrupts.received:
            return self._stop(Ending.INTERRUPTED, None)
        if not self._engine.running:
            self._read_log()
            return self._end(Ending.FAILED, self._why_it_ended())
        if self._tracker.port_taken:
            address = self._order.address
            return self._stop(
                Ending.FAILED, f"port {address.port} was taken while the engine was starting"
            )
        limit = self._order.settings.ready_timeout_seconds
        if self._seconds > limit:
            return self._stop(
                Ending.FAILED,
                f"not ready after {limit:g} s (launch.ready_timeout_seconds);"
                f" it was at: {self._tracker.current.phase.value}",
            )
        return None

    def _stop(self, ending: Ending, reason: str | None) -> Outcome:
        """End the engine; a second Ctrl-C or SIGTERM ends its grace time."""
        self._tell(lambda o: o.stopping(reason or ""))
        before = len(self._interrupts.received)
        deadline = time.monotonic() + self._order.settings.grace_seconds + 1
        self._engine.stop()
        while self._engine.running and time.monotonic() < deadline:
            self._engine.poll(_STARTING_SECONDS, wake=self._interrupts.wake)
            self._read_log()
            if len(self._interrupts.received) > before:
                self._engine.kill()
        self._engine.close()
        return self._end(ending, reason)

    def _end(self, ending: Ending, reason: str | None) -> Outcome:
        return Outcome(
            ending=ending,
            reason=reason,
            engine_exit_code=self._engine.exit_code,
            verification=self._verification,
            steps=tuple(self._tracker.steps),
            ready_seconds=self._ready_seconds,
        )


def describe_exit(code: int | None) -> str:
    """An exit code in words, when the engine printed no error."""
    if code is None:
        return "the engine ended"
    if code < 0:
        name = signal.Signals(-code).name if -code in signal.valid_signals() else str(-code)
        hint = " (often: the machine ran out of memory)" if -code == signal.SIGKILL else ""
        return f"the engine was ended by {name}{hint} and printed no error"
    return f"the engine ended with exit code {code} and printed no error"
