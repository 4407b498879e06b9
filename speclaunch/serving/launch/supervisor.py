"""Start an engine, follow it until it is ready, verify it, and supervise it until it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from msgspec import Struct

from speclaunch.engine import Address
from speclaunch.serving.launch.client import EngineClient, Verification, verify
from speclaunch.serving.launch.engine_log import (
    Follower,
    Phase,
    dead_process,
    describe_exit,
    last_error,
    read_tail,
)
from speclaunch.serving.launch.phases import PhaseStep, PhaseTracker
from speclaunch.serving.launch.planner import Rung
from speclaunch.serving.launch.process import EngineProcess, Interrupts
from speclaunch.serving.launch.runs import other_listener
from speclaunch.serving.launch.watchdog import EngineProbe, LaunchThread, Watchdog, stopped_process

if TYPE_CHECKING:
    from speclaunch.deployments import Launch
    from speclaunch.deployments import VerificationSection as Settings
    from speclaunch.engine import RenderedArgs


class LaunchObserver(Protocol):
    """Observer of a launch's engines and the pauses between them."""

    def attempt(self, number: int, changes: Mapping[str, Any], rung: Rung | None) -> None:
        """Handle the upcoming start of an engine with these changes to the recipe."""

    def spawned(self, pid: int | None, log: Path) -> None:
        """Handle the start of the engine process."""

    def progress(self, tracker: PhaseTracker, seconds: float) -> None:
        """Handle the progress of a start. Called several times a second."""

    def output(self, lines: Sequence[str]) -> None:
        """Handle lines that the engine printed."""

    def ready(self, verification: Verification | None, seconds: float) -> None:
        """Handle a ready engine. `verification` is None if the engine was not verified."""

    def stopping(self, why: str) -> None:
        """Handle the stop of the engine. An empty `why` means that no start follows."""

    def failed(self, why: str) -> None:
        """Handle the end of an attempt before another attempt starts."""

    def waiting(self, seconds: float) -> None:
        """Handle the pause of `seconds` before the next engine starts."""

    def note(self, text: str) -> None:
        """Show a note to the user."""

    def warn(self, text: str) -> None:
        """Show a warning; the engine continues."""


class _Undisturbed:
    def __init__(self, observer: LaunchObserver) -> None:
        self._observer = observer

    def __getattr__(self, event: str) -> Callable[..., None]:
        call = getattr(self._observer, event)

        def notify(*values: object) -> None:
            with contextlib.suppress(OSError, ValueError):  # closed, or a pipe without a reader
                call(*values)

        return notify


def undisturbed(observer: LaunchObserver) -> LaunchObserver:
    """Wrap an observer so that losing its terminal does not stop the engine."""
    return cast("LaunchObserver", _Undisturbed(observer))


class Notifier:
    """Connection to the service manager at the socket that `NOTIFY_SOCKET` names (sd_notify(3)).
    Without the variable it does nothing."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET") or None
        usec = environment.get("WATCHDOG_USEC", "")
        meant = environment.get("WATCHDOG_PID") in (None, "", str(os.getpid()))
        self.watchdog_seconds = int(usec) / 1e6 if usec.isdigit() and meant else None
        """Maximum seconds between messages to systemd (`WatchdogSec=`); None if unlimited."""

    def notify(self, **states: str | int) -> None:
        """Send lines such as `READY=1` and `STATUS=…`; failures are ignored."""
        if self._address is None:
            return
        text = "\n".join(f"{name}={value}" for name, value in states.items())
        # A name that begins with @ is an abstract socket: its first byte is a NUL.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock,
        ):
            sock.setblocking(False)
            sock.sendto(text.encode(), address)


_HEALTH_SECONDS = 0.2
"""Interval between health checks during a start."""


class Prober(LaunchThread):
    """Thread that waits until the engine is healthy, then verifies it."""

    def __init__(
        self,
        address: Address,
        rendered: RenderedArgs,
        settings: Settings | None,
        find_other: Callable[[], str | None],
    ) -> None:
        """Set up the thread. Without `settings`, nothing is verified.

        A rank that serves no requests answers only `/health`, once its part of the model is loaded
        (0.5.23 utils/common.py `launch_dummy_health_check_server`).
        """
        super().__init__("the check of the engine", self._probe)
        self._address, self._rendered, self._settings = address, rendered, settings
        self._stop_requested = threading.Event()
        self.healthy = threading.Event()
        self.done = threading.Event()
        self.verification: Verification | None = None
        self.other_holder: str | None = None
        """Another process that answers at the engine's address, as text; None if none does."""
        self._find_other = find_other

    def _probe(self) -> None:
        """Wait for health and verify. `verification` holds the result when `done` is set."""
        with EngineClient(self._address) as client:
            while not client.healthy():
                if self._stop_requested.wait(_HEALTH_SECONDS):
                    return
            self.other_holder = self._find_other()
            if self.other_holder is not None:
                return
            self.healthy.set()
            if self._settings is not None and self._settings.enabled:
                self.verification = verify(client, self._rendered, self._settings)
        self.done.set()

    def stop(self) -> None:
        self._stop_requested.set()


_STARTING_SECONDS = 0.1
"""Interval at which a starting engine is polled."""
_SERVING_SECONDS = 1.0
_DYING_SECONDS = 3.0
"""Seconds to wait for an engine's exit if its first generation request got no answer."""


class Lease(Protocol):
    """Permission to run the engine, granted by a party outside this process."""

    @property
    def until(self) -> float:
        """Time at which the engine must end unless the lease is extended (`guard.boot_seconds`)."""

    def recalled(self) -> str | None:
        """Return the reason to stop now; None if the engine may continue."""


class EngineSpec(Struct, frozen=True):
    """Everything needed to run one engine."""

    argv: Sequence[str]
    env: Mapping[str, str]
    log: Path
    address: Address
    rendered: RenderedArgs
    settings: Launch
    secrets: Sequence[str] = ()
    private_files: Sequence[Path] = ()
    """Files with secrets, deleted once the engine has read them."""
    smoke: bool = False
    """True to stop once the engine is verified."""
    watch: bool = True
    """True to watch the engine for hangs; False if its memory may be released on purpose."""
    worker: bool = False
    """True for a rank that serves no requests (any but the first of `nnodes`)."""
    lease: Lease | None = None
    degraded: Callable[[], str | None] = lambda: None
    """Function that returns the reason to stop after a drop in acceptance; None to continue."""


class Ending(StrEnum):
    """Way in which an engine run ended."""

    FAILED = "failed"
    """The engine never became ready, or does not serve the requested settings."""
    DIED = "died"
    """The engine was serving and exited without being stopped."""
    HUNG = "hung"
    """The engine was serving and was stopped because it no longer generated."""
    DEGRADED = "degraded"
    """The engine was serving and was stopped because acceptance dropped (serving.on_degraded)."""
    STOPPED = "stopped"
    """The engine was serving and was stopped on request (SIGTERM, or a smoke test)."""
    INTERRUPTED = "interrupted"
    RECALLED = "recalled"
    """The engine was stopped because the deployment's ranks agreed on other settings."""


class EngineOutcome(Struct, frozen=True):
    """Outcome of an engine run, with the reason if it failed."""

    ending: Ending
    reason: str | None = None
    engine_exit_code: int | None = None
    verification: Verification | None = None
    steps: tuple[PhaseStep, ...] = ()
    ready_seconds: float | None = None
    tokens: int | None = None
    """`max_total_num_tokens` that the engine logged; None if it logged none."""
    checked: bool = False
    """True if the ready engine was verified completely."""

    @property
    def served(self) -> bool:
        """True if the engine was ready and passed verification."""
        verified = self.verification is None or self.verification.ok
        return self.ready_seconds is not None and verified and self.checked


def supervise(
    order: EngineSpec, observer: LaunchObserver, interrupts: Interrupts | None = None
) -> EngineOutcome:
    """Run one engine to its end and return the outcome. None of its processes is left afterwards.

    `interrupts`: an existing record of signals. By default, signals are recorded during this call.
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
        self._follower.close()
        if self._watchdog is not None:
            self._watchdog.stop()

    def start(self) -> EngineOutcome | None:
        """Follow the engine until it is verified (return None) or the start fails (return the
        outcome)."""
        address = self._order.address
        prober = Prober(
            address,
            self._order.rendered,
            None if self._order.worker else self._order.settings.verify,
            lambda: other_listener(address.port, self._engine.pids()),
        )
        prober.start()
        announced = False
        try:
            while not prober.done.is_set():
                self._engine.poll(_STARTING_SECONDS, wake=self._interrupts.wake)
                self._engine.reap_orphans()
                if not announced and self._engine.pid is not None:
                    announced = True
                    self._observer.spawned(self._engine.pid, self._order.log)
                self._read_log()
                if prober.healthy.is_set() and self._ready_seconds is None:
                    self._ready_seconds = self._seconds
                    for path in self._order.private_files:
                        path.unlink(missing_ok=True)
                    self._tracker.enter(Phase.READY, self._seconds)
                if announced:  # no progress before the engine was announced
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
        """Supervise until the engine ends, hangs or must stop; return the outcome."""
        self._watch()
        while self._engine.running:
            self._engine.poll(_SERVING_SECONDS, wake=self._interrupts.wake)
            self._engine.reap_orphans()
            self._read_log()
            self._observer.progress(self._tracker, self._seconds)
            if self._interrupts.received:
                interrupted = self._interrupts.received[0] is signal.SIGINT
                return self._stop(Ending.INTERRUPTED if interrupted else Ending.STOPPED, None)
            if self._watchdog is not None and self._watchdog.hung and self._engine.running:
                return self._stop(Ending.HUNG, self._watchdog.hung)
            if self._watchdog is not None and self._watchdog.failure and self._engine.running:
                return self._stop(Ending.FAILED, self._watchdog.failure)
            degraded = self._order.degraded()
            if degraded is not None and self._engine.running:
                return self._stop(Ending.DEGRADED, degraded)
            recalled = self._recalled()
            if recalled is not None:
                return recalled
        self._read_log()
        return self._end(Ending.DIED, self._why_it_ended())

    def _dies(self) -> bool:
        """True if verification failed because the engine ended, for example at its first real
        forward pass."""
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
        if not self._checked:  # later lines concern requests and are many
            for line in lines:
                self._tracker.feed(line, self._seconds)
            self._tracker.glance(self._follower.unfinished, self._seconds)
        if lines:
            self._observer.output(lines)
            if self._watchdog is not None:
                self._watchdog.output(lines)

    def _why_it_ended(self) -> str:
        if self._engine.guard_lost:
            return "the engine's guard process was killed, which also killed the engine"
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
        failure = prober.failure or self._port_taken(prober.other_holder)
        if failure is not None:
            return self._stop(Ending.FAILED, failure)
        limit = self._order.settings.ready_timeout_seconds
        if self._seconds > limit:
            return self._stop(
                Ending.FAILED,
                f"the engine was not ready after {limit:g} s (launch.ready_timeout_seconds); last "
                f"phase: {self._tracker.current.phase.value}",
            )
        return None

    def _port_taken(self, holder: str | None) -> str | None:
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
        """Stop the engine and return the outcome. A second Ctrl-C or SIGTERM ends the grace time.

        If other ranks stop the engine, the platform's SIGTERM to this rank counts as the first
        signal, so the engine may still finish its requests.
        """
        self._observer.stopping(reason or "")
        before = max(len(self._interrupts.received), int(ending is Ending.RECALLED))
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
