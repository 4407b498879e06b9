"""What the platform says of a server's hosts: where they listen, which is which, who is first, and
over which network they meet."""

from __future__ import annotations

from speclaunch.deploy.interface import Rendering, Role
from speclaunch.deploy.names import instances
from speclaunch.deploy.words import ALL_ADDRESSES, Given

DIST_PORT = 20000
"""Where the first host waits for the others (`dist_init_addr`)."""
FILL_IN = "FILL IN"
"""Beginning of a comment about a value that only the cluster's owner knows."""
INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
"""Variables with the network interface by which the ranks of several hosts find each other."""
POD_INTERFACE = "eth0"
"""The interface of a pod's own network: containerd, CRI-O and cri-dockerd all name it so."""


def on_all_addresses() -> Given:
    """A server of one host: reachable from outside of its container."""
    return {"host": (ALL_ADDRESSES,), "dist_init_addr": None, "node_rank": None}


def ranked(first: str, rank: str) -> Given:
    """A host of several: `first` is where the first one waits, `rank` the number of this one."""
    return {"host": (ALL_ADDRESSES,), "dist_init_addr": (first,), "node_rank": (rank,)}


def crosses_hosts(deployment: Rendering, role: Role) -> bool:
    """True if GPUs of the role exchange tensors or KV cache with those of another host."""
    is_pair = role.mode is not None and instances(deployment) > 1
    return role.gpus_per_node > 0 and (role.nodes > 1 or is_pair)


def unset_interfaces(role: Role) -> tuple[str, ...]:
    """The variables of INTERFACES that a server of several hosts needs and the recipe lacks."""
    return tuple(name for name in INTERFACES if role.nodes > 1 and name not in role.env)


def rdma_devices(deployment: Rendering) -> tuple[str, str] | None:
    """The resource of the RDMA devices and how many each pod gets; None if the recipe has none."""
    if deployment.options.rdma is None:
        return None
    name, _, count = deployment.options.rdma.partition(":")
    return name, count or "1"
