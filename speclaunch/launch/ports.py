"""Whether the engine's port is free, and who has it if not."""

from __future__ import annotations

import socket

import psutil

from speclaunch.errors import LaunchError


def require_free(host: str, port: int) -> None:
    """Raise LaunchError when nothing can listen on `host`:`port`.

    The engine itself finds out only after it has loaded everything, and then hangs instead of
    ending (measured on 0.5.23: over a minute, all processes alive).
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
            holder = _holder(port)
            raise LaunchError(
                f"cannot listen on {host}:{port}: {error.strerror}"
                + (f" (held by {holder})" if holder else ""),
                help="choose another port: args.port=…, or stop what holds it",
            ) from error


def _holder(port: int) -> str | None:
    """The process that listens on `port`, as far as this user may see it."""
    try:
        for connection in psutil.net_connections(kind="tcp"):
            if connection.status != psutil.CONN_LISTEN or not connection.pid:
                continue
            if connection.laddr and connection.laddr[1] == port:
                return f"{psutil.Process(connection.pid).name()}, process {connection.pid}"
    except psutil.Error:
        pass
    return None
