"""Speed-up and its confidence: ratios of paired rounds, and an interval for their mean.

Consecutive rounds of the two sides see the same machine state, so their ratio is used. Ratios are
averaged as logarithms (2 times and 1/2 make 1). The interval is Student's for the mean of the
pairs. With five to ten pairs, the usual number, a percentile bootstrap over rounds is too narrow:
it covers about 85 % instead of 95 %. Student's interval is accurate while the logarithms are
roughly normal. `tests/measure/bench/test_statistics.py` verifies both coverages.

Two starts of one deployment also differ, which rounds of one start do not show. With several starts
per side, the pairs of starts are the independent samples: each counts once, with the mean of its
rounds.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from enum import StrEnum
from statistics import fmean, stdev
from typing import Annotated

from msgspec import Meta, Struct

Positive = Annotated[float, Meta(gt=0, le=sys.float_info.max)]

LEAST_PAIRS = 3
"""Minimum pairs of rounds or starts; fewer do not show the spread."""


class SpeedClaim(StrEnum):
    """Claims that the data can support."""

    PAYS = "pays"
    """The entire interval is above 1."""
    DOES_NOT_PAY = "does not pay"
    """The entire interval is below 1."""
    NOT_SHOWN = "not shown"
    """The interval contains 1."""


class Interval(Struct, frozen=True):
    """A ratio, the interval of its true value, and the number of pairs of rounds."""

    ratio: Positive
    low: Positive
    high: Positive
    pairs: int

    @property
    def claim(self) -> SpeedClaim:
        """Claim about the ratio being above 1."""
        if self.low > 1:
            return SpeedClaim.PAYS
        return SpeedClaim.DOES_NOT_PAY if self.high < 1 else SpeedClaim.NOT_SHOWN


def interval(
    ours: Sequence[float], theirs: Sequence[float], confidence: float = 0.95, starts: int = 1
) -> Interval:
    """Return the ratio of paired positive numbers, `ours` to `theirs`, one pair per round.

    `starts`: the number of starts that take turns in the rounds. Raises ValueError for fewer than
    three pairs, unequal lengths, or values not above 0.
    """
    if len(ours) != len(theirs) or len(ours) < LEAST_PAIRS:
        raise ValueError(f"{len(ours)} and {len(theirs)} rounds: at least {LEAST_PAIRS} pairs")
    if min(*ours, *theirs) <= 0:
        raise ValueError("a round measured nothing")
    logs = of_starts(
        [math.log(our / their) for our, their in zip(ours, theirs, strict=True)], starts
    )
    middle = fmean(logs)
    half = quantile(confidence, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    return Interval(math.exp(middle), math.exp(middle - half), math.exp(middle + half), len(ours))


def of_starts(values: Sequence[float], starts: int) -> list[float]:
    """Return the independent values: the mean of each start, or the rounds of a single start.

    The starts take turns in the rounds.
    """
    if starts == 1:
        return list(values)
    return [fmean(values[start::starts]) for start in range(starts)]


def quantile(confidence: float, freedom: int) -> float:
    """Return Student's t for a two-sided interval with probability `confidence`.

    `freedom`: degrees of freedom.
    """
    low, high = 0.0, 1.0
    while _within(high, freedom) < confidence:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < confidence else (low, middle)
    return (low + high) / 2


def _within(bound: float, freedom: int) -> float:
    """Return P(|t| < bound): Abramowitz and Stegun 26.7.3 (odd) and 26.7.4 (even freedom)."""
    angle = math.atan(bound / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    if freedom % 2:
        term, total = cosine, 0.0
        for number in range(1, freedom - 1, 2):
            total += term
            term *= cosine**2 * (number + 1) / (number + 2)
        return (angle + sine * total) * 2 / math.pi
    term, total = 1.0, 0.0
    for number in range(0, freedom - 1, 2):
        total += term
        term *= cosine**2 * (number + 1) / (number + 2)
    return sine * total
