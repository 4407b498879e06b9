"""Distribute work over forked processes, and yield the answers in order."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from speclaunch.core import beating, duration

T = TypeVar("T")

_HEAD = struct.Struct("!II")
"""Header of each answer: the item's number and the answer's length."""
_READ_AT_ONCE = 1 << 16


class WorkerDiedError(Exception):
    """The process that worked on an item ended without an answer."""


Answer = bytes | WorkerDiedError | None


@contextlib.contextmanager
def spread(
    items: Sequence[T], work: Callable[[T], bytes], processes: int
) -> Iterator[Iterator[Answer]]:
    """Yield an iterator of `work`'s answers, one for each item, in order.

    An answer is None if `work` raised an exception or returned nothing, and WorkerDiedError if the
    item killed its process, which is then replaced. No process remains after the block, even if it
    raises. If the parent is killed, each process exits at its next answer.
    """
    pool = _Pool(items, work, processes)
    try:
        for number in range(processes):
            pool.start(number)
        yield pool.in_order()
    finally:
        pool.stop()


class _Pool(Generic[T]):
    """Worker processes, keyed by pipe. Each serves every `processes`-th item."""

    def __init__(self, items: Sequence[T], work: Callable[[T], bytes], processes: int) -> None:
        self._items, self._work, self._step = items, work, processes
        self._children: dict[int, int] = {}
        self._next: dict[int, int] = {}
        """Next unanswered item of each process."""
        self._begun: dict[int, bytearray] = {}
        self._answers: dict[int, Answer] = {}
        self._waiting = selectors.DefaultSelector()

    def start(self, first: int) -> None:
        """Start a process for every `processes`-th item from `first` on."""
        reading, writing = os.pipe()
        # an interrupt must not hit the child while it still has the parent's state
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            child = os.fork()
            if child == 0:
                _serve(self._items, self._work, range(first, len(self._items), self._step), writing)
            self._children[reading] = child
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(writing)
        self._next[reading], self._begun[reading] = first, bytearray()
        self._waiting.register(reading, selectors.EVENT_READ)

    def stop(self) -> None:
        # a second Ctrl-C must not interrupt this
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        for reading in list(self._children):
            self._end(reading)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._waiting.close()

    def _end(self, reading: int) -> int:
        child, status = self._children.pop(reading), 0
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            _, status = os.waitpid(child, 0)
        return status

    def in_order(self) -> Iterator[Answer]:
        for number in range(len(self._items)):
            while number not in self._answers and self._begun:
                for key, _ in self._waiting.select():
                    self._receive(key.fd)
            yield self._answers.pop(number, None) or None

    def _receive(self, reading: int) -> None:
        data = os.read(reading, _READ_AT_ONCE)
        begun = self._begun[reading]
        if data:
            begun += data
            for number in _take(begun, self._answers):
                self._next[reading] = number + self._step
            return
        self._waiting.unregister(reading)
        del self._begun[reading]
        number = self._next.pop(reading)
        # wait for its own exit: SIGKILL would hide the status
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self._children[reading], os.WEXITED | os.WNOWAIT)
        status = self._end(reading)
        if number < len(self._items):
            self._answers[number] = WorkerDiedError(_cause(status))
            if number + self._step < len(self._items):
                self.start(number + self._step)


def _cause(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exit code {code}"
    return signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"


def _serve(items: Sequence[T], work: Callable[[T], bytes], numbers: range, pipe: int) -> None:
    """Run a worker process. Never returns to the parent's code."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        with os.fdopen(pipe, "wb") as out:
            for number in numbers:
                try:
                    answer = work(items[number])
                except Exception:  # repeated in the parent, which can report it
                    answer = b""
                out.write(_HEAD.pack(number, len(answer)) + answer)
                out.flush()
        code = 0
    finally:
        os._exit(code)


def _take(begun: bytearray, answers: dict[int, Answer]) -> Iterator[int]:
    """Move complete answers from a process's output to `answers`; yield their numbers."""
    while len(begun) >= _HEAD.size:
        number, length = _HEAD.unpack_from(begun)
        end = _HEAD.size + length
        if len(begun) < end:
            return
        answers[number] = bytes(begun[_HEAD.size : end])
        del begun[:end]
        yield number


EVERY_SECONDS = 5.0
"""Seconds between two progress lines."""

_awaited: list[str] = []


@contextlib.contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Report what the lint is waiting for while the block runs."""
    _awaited.append(what)
    try:
        yield
    finally:
        _awaited.pop()


@contextlib.contextmanager
def progress(
    log: Callable[[str], None], *, every: float = EVERY_SECONDS
) -> Iterator[Callable[[str], None]]:
    """Yield a function to call with each file; report progress regularly while the block runs."""
    done, now = 0, ""

    def follow(path: str) -> None:
        nonlocal done, now
        done += bool(now)
        now = path

    def text(seconds: float) -> str:
        files = f"{done} file{'' if done == 1 else 's'} checked in {duration(seconds)}"
        if _awaited:
            return f"{files}, waiting for {_awaited[-1]}"
        return f"{files}, at {now}" if now else f"{files}, checking others"

    with beating(log, text, every=every):
        yield follow
