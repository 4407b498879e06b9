"""Client of the worker: start its process, exchange lines, and end it with its children."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from speclaunch.core import children

START = Path(__file__).with_name("worker") / "start.py"
_LONGEST = 8 << 20
"""Maximum bytes of a line; the worker's own limit is lower."""
_TAIL = 4000
"""Maximum bytes stored of the worker's other output."""


_DYING_S = 10.0


class WorkerError(Exception):
    """The worker gave no valid answer and was ended; the text is the reason."""


class JsonWorker:
    """Process that answers lines of JSON with lines of JSON.

    `ask` always returns or raises within its time, and `end` leaves no process behind.
    """

    def __init__(self, command: Sequence[str | Path], env: Mapping[str, str], folder: Path) -> None:
        self._buffer = b""
        self._output_tail = b""
        self._number = 0
        self._process = children.start(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=folder,
            start_new_session=True,
        )
        self._selector = selectors.DefaultSelector()
        for pipe, events in (
            (self._process.stdout, selectors.EVENT_READ),
            (self._process.stderr, selectors.EVENT_READ),
        ):
            assert pipe is not None  # noqa: S101  (requested above)
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, events)
        assert self._process.stdin is not None  # noqa: S101
        os.set_blocking(self._process.stdin.fileno(), False)

    def ask(self, question: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Return its answer to one line. Raises WorkerError and ends it on timeout."""
        self._number += 1
        self.send({**question, "number": self._number}, deadline := time.monotonic() + seconds)
        answer = self.hear(deadline, seconds)
        if answer.pop("number", None) != self._number:
            raise self._failed("the judge printed an answer without a query")
        return answer

    def send(self, question: object, deadline: float) -> None:
        """Write one line; buffer the output meanwhile."""
        pipe = self._process.stdin
        assert pipe is not None  # noqa: S101
        rest = memoryview(json.dumps(question).encode() + b"\n")
        self._selector.register(pipe, selectors.EVENT_WRITE)
        try:
            while rest:
                self._turn(deadline)
                try:
                    rest = rest[os.write(pipe.fileno(), rest) :]
                except BlockingIOError:
                    continue
                except OSError:
                    raise self._failed(self._death()) from None
        finally:
            self._selector.unregister(pipe)

    def hear(self, deadline: float, seconds: float) -> dict[str, Any]:
        """Return the next line of its output, as a JSON object."""
        while b"\n" not in self._buffer:
            if len(self._buffer) > _LONGEST:
                raise self._failed(f"the judge's answer is longer than {_LONGEST >> 20} MiB")
            if time.monotonic() >= deadline:
                raise self._failed(f"the judge gave no answer within {seconds:.3g} s")
            if not self._turn(deadline):
                raise self._failed(self._death())
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self._failed("the judge printed an invalid answer")
        return found

    def _turn(self, deadline: float) -> bool:
        """Read available output; return False once the answers have ended."""
        open_still = True
        for key, _ in self._selector.select(max(0.0, min(1.0, deadline - time.monotonic()))):
            if key.fileobj is self._process.stdin:
                continue
            with contextlib.suppress(BlockingIOError):
                chunk = os.read(key.fd, 1 << 16)
                if key.fileobj is self._process.stdout:
                    self._buffer += chunk
                    open_still = open_still and bool(chunk)
                elif chunk:
                    self._output_tail = (self._output_tail + chunk)[-_TAIL:]
                else:
                    self._selector.unregister(key.fileobj)
        return open_still

    def _death(self) -> str:
        """Return how its process ended, with its last output."""
        try:
            status = self._process.wait(_DYING_S)
        except subprocess.TimeoutExpired:
            return "the judge closed its answers"
        how = (
            f"died of {signal.Signals(-status).name}"
            if -status in set(signal.Signals)
            else f"ended with exit {status}"
        )
        lines = self._output_tail.decode("utf-8", "replace").strip().splitlines()
        return f"the judge's process {how}" + (f": {lines[-1][:300]}" if lines else "")

    def _failed(self, why: str) -> WorkerError:
        self.end()
        return WorkerError(why)

    def end(self) -> None:
        """Kill it and everything in its session; safe to repeat."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._selector.close()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
