"""The machines that the engines are told they run on, and that speclaunch is told by name."""

from __future__ import annotations

from speclaunch.engine.facts.hardware import Hardware, declare

MACHINES = ("h100", "b200", "a100", "mi300x")
GPUS = 8


def hardware(machine: str) -> Hardware:
    """What speclaunch is told: eight of them."""
    return declare(f"{machine}:{GPUS}")
