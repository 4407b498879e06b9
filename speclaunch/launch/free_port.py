"""Ports for engines that are started: free now, and still free when the engine has loaded."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

from speclaunch.errors import LaunchError

_FIRST = 20000
_LAST = 32768
"""Linux gives outgoing connections the ports from here on, where nothing else is set."""
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_given: set[int] = set()


def free_port() -> int:
    """A port that nobody listens on, another one each time.

    It lies below those that the kernel gives to outgoing connections: one of these could have it
    before the engine, which binds it only when it has loaded. Raises LaunchError where all are
    taken.
    """
    ports = list(set(range(_FIRST, _first_outgoing())) - _given)
    random.shuffle(ports)
    for port in ports:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            _given.add(port)
            return port
    raise LaunchError("no port is free for an engine")


def _first_outgoing() -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        found = int(_RANGE.read_text().split()[0])
        if found > _FIRST:
            return found
    return _LAST
