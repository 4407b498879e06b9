"""What the platform says of a server's hosts: where they listen, which is which, who is first."""

from __future__ import annotations

from speclaunch.deploy.words import ALL_ADDRESSES, Given

DIST_PORT = 20000
"""Where the first host waits for the others (`dist_init_addr`)."""


def on_all_addresses() -> Given:
    """A server of one host: reachable from outside of its container."""
    return {"host": (ALL_ADDRESSES,), "dist_init_addr": None, "node_rank": None}


def ranked(first: str, rank: str) -> Given:
    """A host of several: `first` is where the first one waits, `rank` the number of this one."""
    return {"host": (ALL_ADDRESSES,), "dist_init_addr": (first,), "node_rank": (rank,)}
