"""The hardware of a deployment: as its file, the user or this machine names it."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from speclaunch.engine.facts.hardware import AUTO, Hardware, declare
from speclaunch.engine.facts.unknown import UnknownFact

Machine = Callable[[], Hardware | UnknownFact]
"""What this machine has, or why that is not known."""


class ChosenHardware(Struct, frozen=True):
    """The hardware; None where nobody named any. `unknown`: why this machine's is not known."""

    hardware: Hardware | None
    unknown: UnknownFact | None = None


def choose_hardware(
    given: Hardware | None,
    named: str,
    machine: Machine | None,
    *,
    cpu: bool = False,
    here_first: bool = False,
) -> ChosenHardware:
    """The hardware of a recipe that says `hardware.name: named`.

    `given` is that of `--hardware`. `machine` is asked where the recipe leaves it to this machine;
    None leaves it unknown. `cpu`: it runs on the CPU engine. `here_first`: whether it starts here
    is the question, so that this machine counts before what the recipe names (`doctor`).
    """
    if given is not None:
        return ChosenHardware(given)
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
