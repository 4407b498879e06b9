"""The generation of the GPU, as the rules about backends ask for it."""

from __future__ import annotations

from speclaunch.facts.hardware import Vendor
from speclaunch.facts.unknown import UNKNOWN_HARDWARE
from speclaunch.plan.plan import Plan, UnknownValueError


def generation(plan: Plan) -> int | None:
    """The major compute capability; None where there is no NVIDIA GPU, or another device is asked
    for. Raises UnknownValueError."""
    hardware = plan.facts.hardware
    if plan.device != "cuda":
        return None
    if hardware is None:
        raise UnknownValueError(UNKNOWN_HARDWARE)
    if hardware.vendor is not Vendor.NVIDIA:
        return None
    if hardware.capability is None:
        raise UnknownValueError(f"the compute capability of {hardware.name} is not known")
    return hardware.capability // 10
