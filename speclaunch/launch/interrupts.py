"""Signals to speclaunch while it looks after an engine: noted, not raised."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from types import FrameType

from speclaunch.launch.guard import drain


class Interrupts:
    """SIGINT, SIGTERM and SIGHUP while an engine runs: noted, not raised."""

    _NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self, *, for_good: bool = False) -> None:
        """`for_good`: nothing comes after this but the end of the process. A signal then is no
        longer of any use: without it, a second Ctrl-C would spoil the exit code."""
        self._for_good = for_good
        self.received: list[signal.Signals] = []
        self.wake, self._notify = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(self._notify, False)

    def __enter__(self) -> Interrupts:
        self._before = {number: signal.signal(number, self._note) for number in self._NUMBERS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if self._for_good else handler)
        os.close(self.wake)
        os.close(self._notify)

    def wait(self, seconds: float) -> bool:
        """Sleep, unless a signal has come or comes; whether one has."""
        deadline = time.monotonic() + seconds
        while not self.received and (left := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select([self.wake], [], [], left)
            if ready:
                drain(self.wake)
        return bool(self.received)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.received.append(signal.Signals(number))
        with contextlib.suppress(BlockingIOError):  # it is full: whoever waits is woken anyhow
            os.write(self._notify, b"!")
