"""Sizes that are estimates: what is likely, and the least that it will be."""

from __future__ import annotations

from speclaunch.plan.budget import Size
from speclaunch.record import record

MIB = 1 << 20
GIB = 1 << 30


@record
class Estimate:
    """A size as far as it can be told. `least` is what it takes at the very least: a deployment
    is only said to fail where it fails with all estimates at their least."""

    size: Size
    least: int

    @classmethod
    def exactly(cls, size: Size) -> Estimate:
        """A size that is known."""
        return cls(size, size.bytes)


NOTHING = Estimate.exactly(Size(0, "none"))


def in_gib(number: float) -> str:
    """`12.3 GiB`, `0.45 GiB`: as the engine's log lines show sizes (which say GB for it)."""
    gib = number / GIB
    return f"{gib:.2f} GiB" if abs(gib) < 10 else f"{gib:.1f} GiB"
