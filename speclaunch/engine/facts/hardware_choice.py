"""Selects the hardware of a deployment: from its file, the user or this machine."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from speclaunch.engine.facts.hardware import AUTO, Hardware, declare
from speclaunch.engine.facts.unknown import UnknownFact

Machine = Callable[[], Hardware | UnknownFact]
"""This machine's hardware, or the reason why it is unknown."""


class ChosenHardware(Struct, frozen=True):
    """The selected hardware; None if none is set. `unknown`: why this machine's is unknown."""

    hardware: Hardware | None
    unknown: UnknownFact | None = None


def choose_hardware(
    explicit: Hardware | None,
    named: str,
    machine: Machine | None,
    *,
    cpu: bool = False,
    here_first: bool = False,
) -> ChosenHardware:
    """Return the hardware of a recipe with `hardware.name: named`.

    - `explicit`: the value of `--hardware`.
    - `machine`: called if the recipe leaves the choice to this machine. None leaves it unknown.
    - `cpu`: the deployment runs on the CPU engine.
    - `here_first`: this machine takes precedence over the recipe, because `doctor` checks whether
      the recipe starts on this machine.
    """
    if explicit is not None:
        return ChosenHardware(explicit)
    if cpu:
        if machine is None:
            return ChosenHardware(declare("cpu"))
        from speclaunch.engine.facts.hardware_probe import probe_host  # noqa: PLC0415  no check needs it

        return ChosenHardware(probe_host())
    found = machine() if machine is not None and (named == AUTO or here_first) else None
    if isinstance(found, Hardware):
        return ChosenHardware(found)
    if named != AUTO:
        return ChosenHardware(declare(named))
    return ChosenHardware(None, found)
