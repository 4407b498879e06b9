"""Detached launch: it continues after its command has returned.

The process forks. The child starts its own session, launches the engine and supervises it. The
parent follows the start through a pipe. It returns when the engine is ready or the start has
failed.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from speclaunch.serving.launch.guard import drain
from speclaunch.serving.launch.process import Interrupts

OUTPUT = "speclaunch.log"
"""Output of a detached speclaunch, in the run directory."""


class Announcer:
    """Child's end of the pipe."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def send(self, message: Mapping[str, Any]) -> None:
        """Notify the parent process, if alive."""
        with contextlib.suppress(OSError):
            os.write(self._fd, json.dumps(message).encode() + b"\n")

    def close(self) -> None:
        """Close the pipe: the parent returns."""
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
        """Wait for the child's end; return its exit code."""
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


def detach(directory: Path, run: Callable[[Announcer], int]) -> Detached:
    """Fork; the child calls `run` and exits with its exit code. Returns in the parent only.

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
