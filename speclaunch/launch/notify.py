"""What a service manager is told: systemd's notification protocol, see sd_notify(3)."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping, MutableMapping

_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""Meant for speclaunch: the engine, and what it starts, must not answer in its place."""


class Notifier:
    """Sends states to the socket of `NOTIFY_SOCKET`; does nothing without one."""

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


def without_notification(environment: MutableMapping[str, str]) -> None:
    """Take the variables of the protocol out of an environment."""
    for name in _VARIABLES:
        environment.pop(name, None)
