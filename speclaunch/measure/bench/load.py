"""What makes the load: names, and what a comparison needs of either."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from speclaunch.measure.bench.generator import RoundLoad
    from speclaunch.measure.bench.measurement import Round


class Generators(StrEnum):
    """The words of `--generator`."""

    AUTO = "auto"
    SGLANG = "sglang"
    AIPERF = "aiperf"


class LoadGenerator(Protocol):
    """It measures rounds until it is closed."""

    def measure(self, load: RoundLoad, seconds: float) -> Round:
        """One round. Raises LaunchError."""

    def close(self) -> None:
        """End it; safe to repeat."""
