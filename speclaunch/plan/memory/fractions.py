"""Which values of `mem_fraction_static` work."""

from __future__ import annotations

from collections.abc import Callable

from speclaunch.plan.memory.phases import Turn

_STEPS = 1000


def working_range(turn: Callable[[float], Turn | None]) -> tuple[float, float] | None:
    """The least and the largest fraction that work, to 0.001; None: there is none.

    `turn` tells for a fraction which way it must go. A larger one never gives less to the pool,
    and never leaves more beside it: so both ends are found by halving.
    """
    least = _first(lambda step: turn(step / _STEPS) is not Turn.RAISE)
    if least is None or turn(least / _STEPS) is not None:
        return None
    beyond = _first(lambda step: turn(step / _STEPS) is not None, least)
    return least / _STEPS, ((_STEPS if beyond is None else beyond) - 1) / _STEPS


def _first(holds: Callable[[int], bool], after: int = 0) -> int | None:
    """The first step of 1 to 999 (beyond `after`) for which something holds, and from which on it
    does."""
    low, high = after + 1, _STEPS
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low if low < _STEPS else None
