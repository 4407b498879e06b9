"""The GPUs that a pod asks for, and those that the engine puts its ranks on."""

from __future__ import annotations

from collections.abc import Mapping

from speclaunch.facts.hardware import Vendor
from speclaunch.plan.placement import gpus_needed
from speclaunch.plan.plan import Plan
from speclaunch.rules.deployments.common import around
from speclaunch.surroundings import Setting

GPU_RESOURCES: Mapping[str, Vendor] = {
    "nvidia.com/gpu": Vendor.NVIDIA,
    "amd.com/gpu": Vendor.AMD,
}
"""Resources of whole GPUs, and whose they are."""


def asked_gpus(plan: Plan) -> tuple[str, Setting] | None:
    """The resource and the amount of GPUs of the container: its limit, else its request."""
    pod = around(plan).pod
    for amounts in (pod.limits, pod.requests):
        for name in GPU_RESOURCES:
            if name in amounts:
                return name, amounts[name]
    return None


def ranks_on_host(plan: Plan) -> int:
    """GPUs that the engine of one container needs. Raises UnknownValueError."""
    return gpus_needed(plan)
