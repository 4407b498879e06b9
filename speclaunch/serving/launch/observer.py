"""Observers of an engine: the user, and a service manager."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from speclaunch.serving.launch.client import Verification
from speclaunch.serving.launch.log.phases import PhaseTracker
from speclaunch.serving.launch.start import Rung


class LaunchObserver(Protocol):
    """Observer of an engine, and of the time between engines."""

    def attempt(self, number: int, changes: Mapping[str, Any], rung: Rung | None) -> None:
        """Handle the upcoming start of an engine with these changes to the recipe."""

    def spawned(self, pid: int | None, log: Path) -> None:
        """Handle the start of the engine process."""

    def progress(self, tracker: PhaseTracker, seconds: float) -> None:
        """Handle the progress of a start. Called several times a second."""

    def output(self, lines: Sequence[str]) -> None:
        """Handle lines that the engine printed."""

    def ready(self, verification: Verification | None, seconds: float) -> None:
        """Handle an engine that is ready and was verified."""

    def stopping(self, why: str) -> None:
        """Handle the stop of the engine. Without a reason, the stop is final."""

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
    """Return an observer that survives the loss of its terminal, as the engine must."""
    return cast("LaunchObserver", _Undisturbed(observer))


class Notifier:
    """Sender of states to the socket in `NOTIFY_SOCKET` (see sd_notify(3)); inactive if it is
    unset.
    """

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
