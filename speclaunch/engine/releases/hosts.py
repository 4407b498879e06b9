"""The hosts of a server: its listening address, and each host's rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from speclaunch.core import LaunchError
from speclaunch.engine.releases.canonical import value_of


class Address(Struct, frozen=True):
    """The address and credentials of an engine."""

    host: str
    port: int
    tls: bool = False
    api_key: str | None = None

    @property
    def url(self) -> str:
        """Base URL for a client on this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(self.host, self.host)  # noqa: S104
        host = f"[{host}]" if ":" in host else host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


def nodes_of(args: Mapping[str, Any]) -> tuple[int, int]:
    """Return this host's rank and the number of hosts of its server. Raises LaunchError."""
    rank, nodes = (
        _count(args, name, default) for name, default in (("node_rank", 0), ("nnodes", 1))
    )
    if nodes < 1 or not 0 <= rank < nodes:
        raise LaunchError(
            f"node_rank={rank} is not a rank of nnodes={nodes}",
            help="ranks start at 0; set a different rank on each host: args.node_rank=…",
        )
    return rank, nodes


def _count(args: Mapping[str, Any], name: str, default: int) -> int:
    value = value_of(args, name)
    if value is None:
        return default
    try:
        return int(str(value))
    except ValueError:
        raise LaunchError(f"{name}: {value!r} is not a whole number") from None
