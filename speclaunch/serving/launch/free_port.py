"""Free ports for engines, and listeners on ports."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Collection, Iterable
from pathlib import Path

import psutil

from speclaunch.core import LaunchError

_FIRST = 20000
_LAST = 32768
"""First port that Linux assigns to outgoing connections by default."""
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_returned: set[int] = set()


def free_port() -> int:
    """Return a port without a listener, a different port on each call.

    It is below the range that the kernel assigns to outgoing connections. Such a connection could
    take the port before the engine binds it, which happens only after loading. Raises LaunchError
    if all ports are taken.
    """
    ports = list(set(range(_FIRST, _first_outgoing())) - _returned)
    random.shuffle(ports)
    for port in ports:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            _returned.add(port)
            return port
    raise LaunchError("no port is free for an engine")


def _first_outgoing() -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        found = int(_RANGE.read_text().split()[0])
        if found > _FIRST:
            return found
    return _LAST


def require_free(host: str, port: int) -> None:
    """Raise LaunchError if `host`:`port` cannot be bound.

    The engine notices only after it has loaded everything, and then hangs instead of exiting
    (measured on 0.5.23: over a minute, all processes alive).
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, OverflowError) as error:
        raise LaunchError(f"cannot listen on {host}:{port}: {error}") from error
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen(1)
        except OSError as error:
            holder = None
            with contextlib.suppress(psutil.Error, OSError):  # as far as this user may see it
                holder = _named(listeners(port))
            raise LaunchError(
                f"cannot listen on {host}:{port}: {error.strerror}"
                + (f" (held by {holder})" if holder else ""),
                help="choose another port: args.port=…, or stop the process that holds it",
            ) from error


def other_listener(port: int, ours: Collection[int]) -> str | None:
    """Return the listener on `port` if it is not one of the processes `ours`; None otherwise.

    A free port can be taken while the weights load. Another server then answers instead of the
    engine.
    """
    try:
        pids = listeners(port)
    except (psutil.Error, OSError):  # unknown
        return None
    if not pids or any(pid in ours for pid in pids):
        return None
    return _named(pids) or "a process of another user"


def listeners(port: int) -> list[int | None]:
    """Return processes listening on `port`; None for processes this user cannot inspect."""
    return [
        connection.pid
        for connection in psutil.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN
        and connection.laddr
        and connection.laddr[1] == port
    ]


def _named(pids: Iterable[int | None]) -> str | None:
    for pid in pids:
        if pid:
            return f"{psutil.Process(pid).name()}, process {pid}"
    return None
