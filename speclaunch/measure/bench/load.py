"""Load generators: their names and their common interface."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from speclaunch.measure.bench.generator import RoundLoad
    from speclaunch.measure.bench.measurement import Round


class Generators(StrEnum):
    """Values of `--generator`."""

    AUTO = "auto"
    SGLANG = "sglang"
    AIPERF = "aiperf"


class LoadGenerator(Protocol):
    """Load generator that measures rounds until it is closed."""

    def measure(self, load: RoundLoad, seconds: float) -> Round:
        """Measure one round. Raises LaunchError."""

    def close(self) -> None:
        """Stop the generator; safe to repeat."""
