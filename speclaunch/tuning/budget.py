"""How many starts and minutes a tuning may take, and how long its next part will."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from speclaunch.bench.sides import Side
from speclaunch.errors import InputError, Problem
from speclaunch.plan.plan import UnknownValueError
from speclaunch.plan.start_time import start_time
from speclaunch.record import record
from speclaunch.tuning.trials import Protocol, Start

_LEAST_TRIED = 2
_SECONDS_A_START = 600
"""Of an engine of which nothing is known."""
_SECONDS_A_ROUND = 10.0
"""Until the first start says it better."""


@record
class Budget:
    """The most starts and seconds; what the comparison of the best takes is put aside."""

    starts: int
    seconds: float | None
    verified: int
    """The starts of the comparison."""

    @property
    def tried(self) -> int:
        """Starts that try settings."""
        return self.starts - self.verified


def budget(starts: int, minutes: float | None, verified: int) -> Budget:
    """Raises InputError where nothing is left to try."""
    if starts - verified < _LEAST_TRIED:
        raise InputError(
            Problem(
                f"--starts {starts}: the comparison of the best takes {verified}, and at least "
                f"{_LEAST_TRIED} settings have to be tried",
                help=f"allow --starts {verified + _LEAST_TRIED}, or compare fewer: --verify 1",
            )
        )
    return Budget(starts, None if minutes is None else 60 * minutes, verified)


@record
class Expectation:
    """How long a start that tries a setting takes, and the comparison of the best, in seconds."""

    start: float
    comparison: float

    def fits(self, limit: Budget, spent: float) -> bool:
        """Whether one more start, and the comparison behind it, end within the budget."""
        return limit.seconds is None or spent + self.start + self.comparison <= limit.seconds


def expectation(
    side: Side, protocol: Protocol, limit: Budget, rounds: int, done: Sequence[Start]
) -> Expectation:
    """From the starts that were made; before the first one, at the slowest. `rounds`: those of each
    side of the comparison."""
    own = (protocol.rounds + 1) * len(protocol.concurrencies)
    first = _slowest(side) + own * _SECONDS_A_ROUND
    start = fmean(one.seconds for one in done) if done else first
    # what part of a start are its rounds is not known: all of it is taken to be
    compared = limit.verified * start * max(1.0, rounds * len(protocol.concurrencies) / own)
    return Expectation(start, compared)


def _slowest(side: Side) -> float:
    try:
        return float(start_time(side.plan).seconds)
    except UnknownValueError:
        return float(_SECONDS_A_START)
