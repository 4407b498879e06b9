"""Engine process behind its guard, signals to speclaunch, and a detached speclaunch."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from msgspec import Struct

from speclaunch.core import VALUE_PATTERNS, LaunchError, Redactor, children
from speclaunch.serving.launch import guard
from speclaunch.serving.launch.guard import drain


class Interrupts:
    """Recorder of SIGINT, SIGTERM and SIGHUP while an engine runs. The signals raise no
    exceptions."""

    _NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self, *, exits_after: bool = False) -> None:
        """`exits_after`: the process exits after the block, so later signals are ignored. A second
        Ctrl-C would otherwise change the exit code."""
        self._exits_after = exits_after
        self.received: list[signal.Signals] = []
        self.wake, self._notify = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(self._notify, False)

    def __enter__(self) -> Interrupts:
        self._before = {number: signal.signal(number, self._note) for number in self._NUMBERS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if self._exits_after else handler)
        os.close(self.wake)
        os.close(self._notify)

    def wait(self, seconds: float) -> bool:
        """Sleep until a signal arrives, at most `seconds`; return True if a signal arrived."""
        deadline = time.monotonic() + seconds
        while not self.received and (left := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select([self.wake], [], [], left)
            if ready:
                drain(self.wake)
        return bool(self.received)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.received.append(signal.Signals(number))
        with contextlib.suppress(BlockingIOError):  # pipe full: the reader wakes up anyway
            os.write(self._notify, b"!")


_GUARD_SLACK_SECONDS = 3.0
"""Extra time for the guard to exit after the engine's grace time, before it is killed."""


_prepared: list[tuple[str, subprocess.Popen[bytes]]] = []
"""Run name and process of a guard started in advance; empty if there is none."""


def prepare_guard() -> None:
    """Start the guard of the next engine early, in parallel with other work.

    The guard exits if this process exits without starting an engine.
    """
    if not _prepared:
        _prepared.append(_new_guard())


def drop_guard() -> None:
    """End a guard that was started early."""
    while _prepared:
        _, process = _prepared.pop()
        process.communicate()


def _take_guard() -> tuple[str, subprocess.Popen[bytes]]:
    while _prepared:
        run, process = _prepared.pop()
        if process.poll() is None:
            return run, process
    return _new_guard()


def _new_guard() -> tuple[str, subprocess.Popen[bytes]]:
    run = uuid.uuid4().hex
    process = children.start(
        children.isolated(sys.executable, "-S", guard.__file__),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={guard.RUN_VARIABLE: run},
        start_new_session=True,
    )
    return run, process


class EngineProcess:
    """One running engine. Call `close()` on every exit path, or use a `with` block."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        log: Path,
        *,
        grace_seconds: float,
        secrets: Sequence[str] = (),
        private_files: Sequence[Path] = (),
        log_max_bytes: int = 256_000_000,
        log_keep: int = 3,
        until: float | None = None,
    ) -> None:
        """Start `argv` with exactly `env`; its output is written to the file `log`.

        A log larger than `log_max_bytes` is renamed to `….1`; at most `log_keep` such files remain.
        `secrets` are redacted in the log. `private_files` are deleted when the engine has ended,
        even if speclaunch was killed. The engine is killed at `until` (`guard.boot_seconds`) unless
        `extend` was called before.

        Raises LaunchError if the interpreter cannot be run.
        """
        self.grace_seconds = grace_seconds
        self.pid: int | None = None
        self.exit_code: int | None = None
        self.log_error: str | None = None
        self.guard_lost = False
        self._buffer = b""
        guard.adopt_orphans()  # if the guard is killed, its orphans become ours
        self.run, self._guard = _take_guard()
        order = {
            "argv": list(argv),
            "env": {**env, guard.RUN_VARIABLE: self.run},
            "cwd": str(Path.cwd()),
            "log": str(log.absolute()),
            "log_max_bytes": log_max_bytes,
            "log_keep": log_keep,
            "grace_seconds": grace_seconds,
            "secrets": Redactor(secrets).values,
            "secret_patterns": VALUE_PATTERNS,
            "private_files": [str(path.absolute()) for path in private_files],
            "until": until,
        }
        self._until = until
        self._send(json.dumps(order) + "\n")

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def fileno(self) -> int:
        """File descriptor that is readable when the guard has sent a message."""
        assert self._guard.stdout is not None  # noqa: S101 - for the type checker
        return self._guard.stdout.fileno()

    @property
    def running(self) -> bool:
        """True until the guard reports the engine's end."""
        return self.exit_code is None

    def poll(self, seconds: float = 0, wake: int | None = None) -> None:
        """Read the guard's messages, waiting at most `seconds`.

        A byte in the (non-blocking) pipe `wake` ends the wait.
        """
        if not self.running:
            return
        listening = [self.fileno] if wake is None else [self.fileno, wake]
        ready, _, _ = select.select(listening, [], [], seconds)
        if wake in ready and wake is not None:
            guard.drain(wake)
        if self.fileno not in ready:
            return
        data = os.read(self.fileno, 1 << 16)
        if not data:
            self._lost()
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._handle(json.loads(line))

    def reap_orphans(self) -> None:
        """Collect ended orphans that this process adopted.

        As process 1 of a container, speclaunch adopts every orphan.
        """
        while hasattr(os, "waitid"):
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None or ended.si_pid == self._guard.pid:
                return
            with contextlib.suppress(ChildProcessError):
                os.waitpid(ended.si_pid, os.WNOHANG)

    def stop(self) -> None:
        """Request a graceful stop; the guard kills remaining processes after the grace time."""
        self._send("stop\n")

    def kill(self) -> None:
        self._send("kill\n")

    def extend(self, until: float) -> None:
        """Extend the deadline at which the guard kills the engine."""
        if until != self._until and self.running:
            self._until = until
            self._send(f"until {until!r}\n")

    def wait(self, seconds: float) -> bool:
        """Wait for the engine's end; return True if it ended in time."""
        deadline = time.monotonic() + seconds
        while self.running and (left := deadline - time.monotonic()) > 0:
            self.poll(min(left, 0.5))
        return not self.running

    def pids(self) -> set[int]:
        """Return the ids of the engine's processes and its guard."""
        return {self._guard.pid, *guard.descendants(self._guard.pid)}

    def close(self) -> None:
        """End all processes of the engine and its guard, whatever their state."""
        if self.running:
            self.stop()
            if not self.wait(self.grace_seconds + _GUARD_SLACK_SECONDS):
                self._lost()
        for stream in (self._guard.stdin, self._guard.stdout):
            if stream is not None and not stream.closed:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            self._guard.wait(_GUARD_SLACK_SECONDS)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()

    def _handle(self, message: dict[str, int | str]) -> None:
        if "pid" in message:
            self.pid = int(message["pid"])
        elif "log_error" in message:
            self.log_error = str(message["log_error"]) if message["log_error"] else None
        elif "exit" in message:
            self.exit_code = int(message["exit"])
        elif "error" in message:
            self.exit_code = 127
            raise LaunchError(
                f"cannot run the engine's interpreter: {message['error']}",
                help="set another interpreter: engine.python=/path/to/python",
            )

    def _lost(self) -> None:
        """Kill a lost or hanging guard and everything it started."""
        self.guard_lost = True
        pids = self.pids()
        deadline = time.monotonic() + _GUARD_SLACK_SECONDS
        while pids and time.monotonic() < deadline:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            self._guard.poll()
            for pid in pids - {self._guard.pid}:  # orphans of the guard are our children now
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.02)
            pids = set(guard.marked(self.run))
        self.exit_code = -signal.SIGKILL

    def _send(self, text: str) -> None:
        assert self._guard.stdin is not None  # noqa: S101 - for the type checker
        try:
            self._guard.stdin.write(text.encode())
            self._guard.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass  # it has ended; poll() will report it


OUTPUT = "speclaunch.log"
"""Name of a detached speclaunch's output file in the run directory."""


class Announcer:
    """Child's end of the pipe to the parent of a detached launch."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message to the parent if it is alive."""
        with contextlib.suppress(OSError):
            os.write(self._fd, json.dumps(message).encode() + b"\n")

    def close(self) -> None:
        """Close the pipe, so that the parent returns."""
        with contextlib.suppress(OSError):
            os.close(self._fd)


class Detached(Struct):
    """Parent's end of the pipe to a detached launch."""

    pid: int
    fd: int

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield the child's messages until it closes the pipe. Forward signals to the child."""
        buffer = b""
        with Interrupts() as interrupts:
            while True:
                ready, _, _ = select.select([self.fd, interrupts.wake], [], [])
                if interrupts.wake in ready:
                    drain(interrupts.wake)
                    for _ in interrupts.received:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(self.pid, signal.SIGTERM)
                    interrupts.received.clear()
                if self.fd not in ready:
                    continue
                data = os.read(self.fd, 1 << 16)
                if not data:
                    return
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    yield json.loads(line)

    def wait(self) -> int:
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


def detach(directory: Path, run: Callable[[Announcer], int]) -> Detached:
    """Fork; the child calls `run` and exits with its result. Returns in the parent only.

    Call it while the process has one thread.
    """
    output = os.open(directory / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(writing)
        os.close(output)
        return Detached(pid, reading)
    code = 4
    try:
        os.close(reading)
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        os.close(nothing)
        os.close(output)
        try:
            code = run(Announcer(writing))
        except BaseException:  # a bug: no caller is left to report it
            traceback.print_exc()
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
    finally:
        os._exit(code)
