"""Who is told what happens to an engine: the user, and a service manager."""

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
    """Is told what happens to an engine, and between one engine and the next."""

    def attempt(self, number: int, changes: Mapping[str, Any], rung: Rung | None) -> None:
        """An engine is about to be started with these changes against the recipe."""

    def spawned(self, pid: int | None, log: Path) -> None:
        """The engine process was started."""

    def progress(self, tracker: PhaseTracker, seconds: float) -> None:
        """Called several times a second while the engine starts."""

    def output(self, lines: Sequence[str]) -> None:
        """The engine printed these lines."""

    def ready(self, verification: Verification | None, seconds: float) -> None:
        """The engine is ready and was checked."""

    def stopping(self, why: str) -> None:
        """The engine is being stopped: permanently if no reason is given."""

    def failed(self, why: str) -> None:
        """An attempt came to its end, and there will be another."""

    def waiting(self, seconds: float) -> None:
        """The next engine is started in so many seconds."""

    def note(self, text: str) -> None:
        """Something that is good to know."""

    def warn(self, text: str) -> None:
        """Something is not as it should be, and the engine runs on."""


class _Undisturbed:
    def __init__(self, observer: LaunchObserver) -> None:
        self._observer = observer

    def __getattr__(self, event: str) -> Callable[..., None]:
        call = getattr(self._observer, event)

        def tell(*values: object) -> None:
            with contextlib.suppress(OSError, ValueError):  # closed, or a pipe without a reader
                call(*values)

        return tell


def undisturbed(observer: LaunchObserver) -> LaunchObserver:
    """Return an observer whose terminal may go away: that must not take the engine down."""
    return cast("LaunchObserver", _Undisturbed(observer))


class Notifier:
    """Sends states to the socket of `NOTIFY_SOCKET`, see sd_notify(3); does nothing without one."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET") or None
        usec = environment.get("WATCHDOG_USEC", "")
        meant = environment.get("WATCHDOG_PID") in (None, "", str(os.getpid()))
        self.watchdog_seconds = int(usec) / 1e6 if usec.isdigit() and meant else None
        """How often at least systemd wants to hear from us (`WatchdogSec=`); None: not at all."""

    def tell(self, **states: str | int) -> None:
        """Send `READY=1`, `STATUS=…`; one that cannot be sent is left unsent."""
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
