"""Start an engine, follow it until it is ready, check it, and stay until it ends."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from speclaunch.engine import Address
from speclaunch.serving.launch.client import EngineClient, Verification, verify
from speclaunch.serving.launch.free_port import stranger
from speclaunch.serving.launch.log.lines import (
    Follower,
    dead_process,
    describe_exit,
    last_error,
    read_tail,
)
from speclaunch.serving.launch.log.marks import Phase
from speclaunch.serving.launch.log.phases import PhaseStep, PhaseTracker
from speclaunch.serving.launch.observer import LaunchObserver, undisturbed
from speclaunch.serving.launch.process import EngineProcess, Interrupts
from speclaunch.serving.launch.watchdog import EngineProbe, LaunchThread, Watchdog, stopped_process

if TYPE_CHECKING:
    from speclaunch.deployments import Launch
    from speclaunch.deployments import VerificationSection as Settings
    from speclaunch.engine import RenderedArgs

_HEALTH_SECONDS = 0.2
"""How often a starting engine is asked."""


class Prober(LaunchThread):
    """Waits for the engine's health and checks it, off the main thread."""

    def __init__(
        self,
        address: Address,
        asked: RenderedArgs,
        settings: Settings | None,
        stranger: Callable[[], str | None],
    ) -> None:
        """Without `settings` nothing is checked: a rank that serves no requests answers `/health`
        once its part of the model is loaded, and nothing else (0.5.23 utils/common.py
        `launch_dummy_health_check_server`)."""
        super().__init__("the check of the engine", self._probe)
        self._address, self._asked, self._settings = address, asked, settings
        self._stop_asked = threading.Event()
        self.healthy = threading.Event()
        self.done = threading.Event()
        self.verification: Verification | None = None
        self.stranger: str | None = None
        """Who answers in the engine's place."""
        self._look = stranger

    def _probe(self) -> None:
        """Wait and check; the result is in `verification` once `done` is set."""
        with EngineClient(self._address) as client:
            while not client.healthy():
                if self._stop_asked.wait(_HEALTH_SECONDS):
                    return
            self.stranger = self._look()
            if self.stranger is not None:
                return
            self.healthy.set()
            if self._settings is not None and self._settings.enabled:
                self.verification = verify(client, self._asked, self._settings)
        self.done.set()

    def stop(self) -> None:
        """Wait no longer."""
        self._stop_asked.set()


_STARTING_SECONDS = 0.1
"""How often a starting engine is looked at."""
_SERVING_SECONDS = 1.0
_DYING_SECONDS = 3.0
"""How long an engine may take to end after a generation that it did not answer."""


class Lease(Protocol):
    """Whether the engine may run, where that is not for this process alone to say."""

    @property
    def until(self) -> float:
        """When it must have ended if nothing more is heard (`guard.boot_seconds`)."""

    def recalled(self) -> str | None:
        """Why it has to stop now; None where it may go on."""


class EngineSpec(Struct, frozen=True):
    """Everything needed to run one engine."""

    argv: Sequence[str]
    env: Mapping[str, str]
    log: Path
    address: Address
    asked: RenderedArgs
    settings: Launch
    secrets: Sequence[str] = ()
    private_files: Sequence[Path] = ()
    """Files with secrets, deleted as soon as the engine has read them."""
    smoke: bool = False
    """Stop as soon as the engine was checked."""
    watch: bool = True
    """Whether it is an engine that generates whenever it is asked to."""
    worker: bool = False
    """Whether it is a rank that serves no requests: of `nnodes`, all but the first."""
    lease: Lease | None = None


class Ending(StrEnum):
    """How a launch ended."""

    FAILED = "failed"
    """The engine never became ready, or does not serve what was asked."""
    DIED = "died"
    """It was serving, and ended by itself."""
    HUNG = "hung"
    """It was serving, and was stopped because it did not generate any more."""
    STOPPED = "stopped"
    """It was serving, and was stopped because we were asked to (SIGTERM, or a smoke test)."""
    INTERRUPTED = "interrupted"
    RECALLED = "recalled"
    """It was stopped because the ranks of the deployment agreed on something else."""


class EngineOutcome(Struct, frozen=True):
    """The end of a launch, with the reason where it is not a good one."""

    ending: Ending
    reason: str | None = None
    engine_exit_code: int | None = None
    verification: Verification | None = None
    steps: tuple[PhaseStep, ...] = ()
    ready_seconds: float | None = None
    tokens: int | None = None
    """`max_total_num_tokens` that the engine logged."""
    checked: bool = False
    """Whether the check of a ready engine came to its end."""

    @property
    def served(self) -> bool:
        """Whether it was ready and did what was asked."""
        verified = self.verification is None or self.verification.ok
        return self.ready_seconds is not None and verified and self.checked


def supervise(
    order: EngineSpec, observer: LaunchObserver, interrupts: Interrupts | None = None
) -> EngineOutcome:
    """Run one engine to its end. Whatever happens, no process of it is left afterwards.

    `interrupts`: where signals are noted already; without it, they are as long as this runs.
    """
    with contextlib.ExitStack() as stack:
        noted = interrupts if interrupts is not None else stack.enter_context(Interrupts())
        engine = stack.enter_context(
            EngineProcess(
                order.argv,
                order.env,
                order.log,
                grace_seconds=order.settings.grace_seconds,
                secrets=order.secrets,
                private_files=order.private_files,
                log_max_bytes=int(order.settings.log.max_mb * 1e6),
                log_keep=order.settings.log.keep,
                until=None if order.lease is None else order.lease.until,
            )
        )
        run = _Run(order, observer, noted, engine)
        stack.callback(run.close)
        outcome = run.start()
        if outcome is None:
            outcome = run.serve()
        return outcome


class _Run:
    """One engine between its spawn and its end."""

    def __init__(
        self,
        order: EngineSpec,
        observer: LaunchObserver,
        interrupts: Interrupts,
        engine: EngineProcess,
    ) -> None:
        self._order = order
        self._observer = undisturbed(observer)
        self._log_error: str | None = None
        self._interrupts = interrupts
        self._engine = engine
        self._tracker = PhaseTracker()
        self._follower = Follower(order.log)
        self._spawned = time.monotonic()
        self._verification: Verification | None = None
        self._ready_seconds: float | None = None
        self._checked = False
        self._watchdog: Watchdog | None = None

    def close(self) -> None:
        """Let go of what is open."""
        self._follower.close()
        if self._watchdog is not None:
            self._watchdog.stop()

    def start(self) -> EngineOutcome | None:
        """Follow the engine until it is checked; the outcome if it comes to nothing."""
        address = self._order.address
        prober = Prober(
            address,
            self._order.asked,
            None if self._order.worker else self._order.settings.verify,
            lambda: stranger(address.port, self._engine.pids()),
        )
        prober.start()
        told = False
        try:
            while not prober.done.is_set():
                self._engine.poll(_STARTING_SECONDS, wake=self._interrupts.wake)
                self._engine.reap_strangers()
                if not told and self._engine.pid is not None:
                    told = True
                    self._observer.spawned(self._engine.pid, self._order.log)
                self._read_log()
                if prober.healthy.is_set() and self._ready_seconds is None:
                    self._ready_seconds = self._seconds
                    for path in self._order.private_files:
                        path.unlink(missing_ok=True)
                    self._tracker.enter(Phase.READY, self._seconds)
                if told:  # who has not heard of an engine need not hear how far it is
                    self._observer.progress(self._tracker, self._seconds)
                failed = self._failed_start(prober)
                if failed is not None:
                    return failed
        finally:
            prober.stop()
        verification = prober.verification
        if verification is not None and not verification.ok and self._dies():
            self._read_log()
            return self._end(Ending.FAILED, self._why_it_ended())
        self._verification = verification
        self._checked = True
        seconds = self._ready_seconds or self._seconds
        self._observer.ready(self._verification, seconds)
        if self._verification is not None and not self._verification.ok:
            return self._stop(Ending.FAILED, "; ".join(self._verification.problems))
        # a worker ends with the first rank, and ranks that agree end together
        if self._order.smoke and not self._order.worker and self._order.lease is None:
            return self._stop(Ending.STOPPED, None)
        return None

    def serve(self) -> EngineOutcome:
        """Stay until the engine ends, hangs, or we are asked to stop."""
        self._watch()
        while self._engine.running:
            self._engine.poll(_SERVING_SECONDS, wake=self._interrupts.wake)
            self._engine.reap_strangers()
            self._read_log()
            self._observer.progress(self._tracker, self._seconds)
            if self._interrupts.received:
                interrupted = self._interrupts.received[0] is signal.SIGINT
                return self._stop(Ending.INTERRUPTED if interrupted else Ending.STOPPED, None)
            if self._watchdog is not None and self._watchdog.hung and self._engine.running:
                return self._stop(Ending.HUNG, self._watchdog.hung)
            if self._watchdog is not None and self._watchdog.failure and self._engine.running:
                return self._stop(Ending.FAILED, self._watchdog.failure)
            recalled = self._recalled()
            if recalled is not None:
                return recalled
        self._read_log()
        return self._end(Ending.DIED, self._why_it_ended())

    def _dies(self) -> bool:
        """Whether the check failed because the engine ended: of the first real forward, say."""
        deadline = time.monotonic() + _DYING_SECONDS
        while self._engine.running and time.monotonic() < deadline:
            self._engine.poll(_STARTING_SECONDS, wake=self._interrupts.wake)
            if self._interrupts.received:
                break
        return not self._engine.running

    def _watch(self) -> None:
        settings = self._order.settings.watchdog
        generated = self._verification is not None and self._verification.generation is not None
        if settings.enabled and self._order.watch and not self._order.worker:
            self._watchdog = Watchdog(
                settings,
                EngineProbe(self._order.address),
                lambda: stopped_process(self._engine.pid),
                armed=generated,
            )
            self._watchdog.start()

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._spawned

    def _read_log(self) -> None:
        if self._engine.log_error != self._log_error:
            self._log_error = self._engine.log_error
            if self._log_error:
                text = f"cannot write the engine's log: {self._log_error}"
                self._observer.warn(text)
        lines = self._follower.lines()
        if not self._checked:  # later lines are of requests, and there are many
            for line in lines:
                self._tracker.feed(line, self._seconds)
            self._tracker.glance(self._follower.unfinished, self._seconds)
        if lines:
            self._observer.output(lines)
            if self._watchdog is not None:
                self._watchdog.output(lines)

    def _why_it_ended(self) -> str:
        if self._engine.guard_lost:
            return "its guard process was killed, and the engine with it"
        tail = read_tail(self._order.log)
        code = self._engine.exit_code
        return last_error(tail) or dead_process(tail) or describe_exit(code)

    def _failed_start(self, prober: Prober) -> EngineOutcome | None:
        if self._interrupts.received:
            return self._stop(Ending.INTERRUPTED, None)
        recalled = self._recalled()
        if recalled is not None:
            return recalled
        if not self._engine.running:
            self._read_log()
            return self._end(Ending.FAILED, self._why_it_ended())
        failure = prober.failure or self._port_taken(prober.stranger)
        if failure is not None:
            return self._stop(Ending.FAILED, failure)
        limit = self._order.settings.ready_timeout_seconds
        if self._seconds > limit:
            return self._stop(
                Ending.FAILED,
                f"not ready after {limit:g} s (launch.ready_timeout_seconds); it was in the "
                f"phase: {self._tracker.current.phase.value}",
            )
        return None

    def _port_taken(self, holder: str | None) -> str | None:
        """Who has the engine's port, if it is another process."""
        if not self._tracker.port_taken and holder is None:
            return None
        taken = f"port {self._order.address.port} was taken while the engine was starting"
        return f"{taken} (by {holder})" if holder else taken

    def _recalled(self) -> EngineOutcome | None:
        lease = self._order.lease
        if lease is None or not self._engine.running:
            return None
        self._engine.extend(lease.until)
        why = lease.recalled()
        return None if why is None else self._stop(Ending.RECALLED, why)

    def _stop(self, ending: Ending, reason: str | None) -> EngineOutcome:
        """End the engine; a second Ctrl-C or SIGTERM ends its grace time."""
        self._observer.stopping(reason or "")
        before = len(self._interrupts.received)
        deadline = time.monotonic() + self._order.settings.grace_seconds + 1
        self._engine.stop()
        while self._engine.running and time.monotonic() < deadline:
            self._engine.poll(_STARTING_SECONDS, wake=self._interrupts.wake)
            self._read_log()
            if self._order.lease is not None:
                self._engine.extend(self._order.lease.until)
            if len(self._interrupts.received) > before:
                self._engine.kill()
        self._engine.close()
        return self._end(ending, reason)

    def _end(self, ending: Ending, reason: str | None) -> EngineOutcome:
        return EngineOutcome(
            ending=ending,
            reason=reason,
            engine_exit_code=self._engine.exit_code,
            verification=self._verification,
            steps=tuple(self._tracker.steps),
            ready_seconds=self._ready_seconds,
            tokens=self._tracker.max_total_tokens,
            checked=self._checked,
        )
