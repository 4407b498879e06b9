"""Prefill and decode hand over KV cache without a fast network in their pods."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.patterns import lazy
from speclaunch.plan.plan import Plan
from speclaunch.rules.deployments.common import around, in_kubernetes, is_on, mode, written
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_RDMA = lazy(r"rdma|efa|(?:^|[/_-])ib|infiniband|hca|roce|sriov|eni|vf$|mlnx|mellanox|nic")
_CARRIERS = ("mooncake", "nixl", "mori")
_ELSE = ("MC_FORCE_TCP", "MOONCAKE_PROTOCOL", "MC_FORCE_MNNVL", "UCX_TLS", "FI_PROVIDER")
"""Variables that say how else, or that somebody has thought of it."""


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for a role whose pod has no device of a fast network."""
    pod = around(plan).pod
    backend = plan.value("disaggregation_transfer_backend")
    if mode(plan) is None or backend not in _CARRIERS or not in_kubernetes(plan):
        return
    if is_on(pod.privileged) or is_on(pod.host_network) or any(n in pod.env for n in _ELSE):
        return
    if any(_RDMA.search(name.lower()) for name in (*pod.limits, *pod.requests)):
        return
    yield Verdict(
        f"{backend} moves the KV cache and the pod has no RDMA device and not the host's network",
        at=("disaggregation_transfer_backend", "disaggregation_mode"),
        why="it falls back to TCP, or finds no device: handing over a long prompt takes longer "
        "than computing it",
        fix=Fix("ask for the device plugin's resource (rdma/…), or use hostNetwork"),
        place=around(plan).place,
        others=written(plan, "disaggregation_mode"),
    )


RULE = rule("SPL881", "missing-rdma", Severity.WARNING, check)
