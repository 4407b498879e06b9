"""One thread that does what takes time, one thing after the other.

What checks remembers much between files and is made for one thread; the loop that talks to the
editor must never wait for it. The thread ends with the process, whatever it is at.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """Runs functions in their order, in a thread of its own."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[
            tuple[Callable[[], Any], asyncio.Future[Any], asyncio.AbstractEventLoop]
        ] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, work: Callable[[], T]) -> T:
        """The result of a function, or what it raises."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, daemon=True, name="check")
            self._thread.start()
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()
        self._waiting.put((work, result, loop))
        return await result

    def _serve(self) -> None:
        while True:
            work, result, loop = self._waiting.get()
            if result.cancelled():
                continue
            try:
                value, error = work(), None
            except BaseException as raised:
                value, error = None, raised
            try:
                loop.call_soon_threadsafe(_deliver, result, value, error)
            except RuntimeError:  # the loop is closed: nobody waits
                return


def _deliver(result: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if result.cancelled():
        return
    if error is not None:
        result.set_exception(error)
    else:
        result.set_result(value)
