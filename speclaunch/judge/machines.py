"""What a release is told about hardware that is declared (`h200:8`)."""

from __future__ import annotations

from typing import Any

from speclaunch.facts.hardware import Vendor, declare

_GFX = {
    "mi210": ("gfx90a", 90, 104),
    "mi250x": ("gfx90a", 90, 110),
    "mi300x": ("gfx942", 94, 304),
    "mi325x": ("gfx942", 94, 304),
    "mi350x": ("gfx950", 95, 256),
    "mi355x": ("gfx950", 95, 256),
}
"""Architecture, capability as torch tells it, and compute units of AMD's GPUs. Source: AMD's
documentation of ROCm, "accelerator and GPU hardware specifications"."""


def told(machine: str) -> dict[str, Any]:
    """The facts of a declared machine; raises InputError for one that is none."""
    hardware = declare(machine)
    if hardware.vendor is Vendor.CPU:
        return {"name": "cpu", "device": "cpu", "count": 0, "memory_mib": None, "capability": None}
    vendor = "AMD Instinct" if hardware.vendor is Vendor.AMD else "NVIDIA"
    found: dict[str, Any] = {
        "name": f"{vendor} {hardware.name.upper()}",
        "device": "cuda",
        "count": hardware.count,
        "memory_mib": hardware.memory_mib,
        "capability": hardware.capability,
    }
    if hardware.vendor is Vendor.AMD:
        gfx, capability, units = _GFX[hardware.name]
        found |= {"gfx": gfx, "capability": capability, "processors": units}
    return found
