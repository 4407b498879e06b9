"""Work that is shared by several processes, each a copy of this one; the answers come in order."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

_HEAD = struct.Struct("!II")
"""Before each answer: the number of the item, the length of the answer."""
_READ_AT_ONCE = 1 << 16


@contextlib.contextmanager
def spread(
    items: Sequence[T], work: Callable[[T], bytes], processes: int
) -> Iterator[Iterator[bytes | None]]:
    """The answers of `work`, one an item, in the order of the items.

    None where a process did not answer: it raised something, or was killed. When the block is left,
    however it is left, no process remains; one whose parent is killed ends with its next answer.
    """
    started: dict[int, int] = {}
    """The process behind the reading end of each pipe."""
    try:
        for number in range(processes):
            reading, writing = os.pipe()
            # an interrupt must not find the copy in the middle of what this process was doing
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                child = os.fork()
                if child == 0:
                    _serve(items, work, range(number, len(items), processes), writing)
                started[reading] = child
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(writing)
        yield _in_order(len(items), list(started))
    finally:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # who presses it twice
        for reading, child in started.items():
            os.close(reading)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(items: Sequence[T], work: Callable[[T], bytes], numbers: range, pipe: int) -> None:
    """The life of a process. It never returns into what this process was doing."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        with os.fdopen(pipe, "wb") as out:
            for number in numbers:
                try:
                    said = work(items[number])
                except Exception:  # it is done again where it can be told
                    said = b""
                out.write(_HEAD.pack(number, len(said)) + said)
                out.flush()
        code = 0
    finally:
        os._exit(code)


def _in_order(count: int, pipes: list[int]) -> Iterator[bytes | None]:
    answers: dict[int, bytes] = {}
    begun = {pipe: bytearray() for pipe in pipes}
    with selectors.DefaultSelector() as waiting:
        for pipe in pipes:
            waiting.register(pipe, selectors.EVENT_READ)
        for number in range(count):
            own = pipes[number % len(pipes)]
            while number not in answers and own in begun:
                for key, _ in waiting.select():
                    data = os.read(key.fd, _READ_AT_ONCE)
                    if not data:
                        waiting.unregister(key.fd)
                        del begun[key.fd]
                        continue
                    begun[key.fd] += data
                    _take(begun[key.fd], answers)
            yield answers.pop(number, b"") or None


def _take(begun: bytearray, answers: dict[int, bytes]) -> None:
    """Take the answers that are whole out of what a process wrote."""
    while len(begun) >= _HEAD.size:
        number, length = _HEAD.unpack_from(begun)
        end = _HEAD.size + length
        if len(begun) < end:
            return
        answers[number] = bytes(begun[_HEAD.size : end])
        del begun[:end]
