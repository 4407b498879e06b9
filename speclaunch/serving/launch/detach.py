"""A launch that goes on when the command that began it has returned.

The process forks: the child, in a session of its own, launches and looks after the engine; the
parent hears from it through a pipe how the start goes, and returns when the engine is ready, or
when there will be none.
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
"""In the directory of the run: what a detached speclaunch itself says."""


class Announcer:
    """The child's end of the pipe."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def tell(self, message: Mapping[str, Any]) -> None:
        """Tell the parent, if it is still there."""
        with contextlib.suppress(OSError):
            os.write(self._fd, json.dumps(message).encode() + b"\n")

    def close(self) -> None:
        """There is nothing more to tell: the parent returns."""
        with contextlib.suppress(OSError):
            os.close(self._fd)


class Detached(Struct):
    """The parent's end: a launch of its own."""

    pid: int
    fd: int

    def messages(self) -> Iterator[dict[str, Any]]:
        """What it tells, until it has no more to tell. A signal to us is passed on to it."""
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
        """Wait for its end; the exit code."""
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


def detach(directory: Path, run: Callable[[Announcer], int]) -> Detached:
    """Fork; the child calls `run` and ends with its exit code. Returns in the parent only.

    To be called while the process has one thread.
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
        except BaseException:  # a bug: nobody above us would tell of it any more
            traceback.print_exc()
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
    finally:
        os._exit(code)
