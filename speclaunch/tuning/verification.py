"""The best settings against the recipe's own: an interleaved comparison, and what it shows.

That a setting was the fastest of many says little: one start each, and the luckiest of them. So the
best few are measured again, in starts of their own and in rounds that take turns with the recipe's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from speclaunch.bench.gate import Expected, objections
from speclaunch.bench.goodput import goodput
from speclaunch.bench.measurement import Measured, Round
from speclaunch.bench.statistics import LEAST_PAIRS, Claim, Interval, interval
from speclaunch.record import record
from speclaunch.tuning.objective import Objective
from speclaunch.tuning.setting import Setting
from speclaunch.tuning.trials import Protocol

OWN = "the recipe's own"
ERROR_RATE = 0.05
"""How often a setting is said to be faster where none is; divided among those that are compared."""


@record
class Compared:
    """A setting against the recipe's own."""

    setting: Setting
    ratio: Interval
    """Of the objective; of several loads by the geometric mean."""
    by_load: tuple[tuple[int, float], ...]
    """The ratio at each number of requests at a time."""

    @property
    def is_faster(self) -> bool:
        """Whether that is shown."""
        return self.ratio.claim is Claim.PAYS


@record
class Verdict:
    """What the comparison shows; `refused`: why it does not count."""

    compared: tuple[Compared, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def winner(self) -> Compared | None:
        """The best of those that are shown to be faster; None: the recipe stays as it is."""
        faster = [one for one in self.compared if one.is_faster]
        return max(faster, key=lambda one: one.ratio.ratio, default=None)


def verdict(
    aim: Objective,
    protocol: Protocol,
    settings: Sequence[Setting],
    rounds: Sequence[Round],
    starts: int = 1,
) -> Verdict:
    """What the rounds show; sides are named by their settings, and were started so often."""
    sides = [Expected(OWN, speculates=True)]
    sides += [Expected(str(one), speculates=True, drafts=one.tokens) for one in settings]
    refused: list[str] = []
    for load in aim.concurrencies:
        there = Measured(tuple(one for one in rounds if one.concurrency == load))
        refused += [one.message for one in objections(there, sides, protocol.requests_at(load))]
    if refused:
        return Verdict(refused=tuple(dict.fromkeys(refused)))
    confidence = 1 - ERROR_RATE / len(settings)
    measured = Measured(tuple(rounds))
    found = []
    for one in settings:
        ours, theirs = _series(aim, measured, str(one)), _series(aim, measured, OWN)
        pairs = min(len(next(iter(ours.values()))), len(next(iter(theirs.values()))))
        least = max(LEAST_PAIRS, starts)
        if pairs < least:
            return Verdict(refused=(f"{pairs} pairs of rounds: at least {least}",))
        if min(min(values) for values in (*ours.values(), *theirs.values())) <= 0:
            return Verdict(refused=("in a round no request met the bounds",))
        ratio = interval(_together(ours, pairs), _together(theirs, pairs), confidence, starts)
        by_load = tuple((load, median(ours[load]) / median(theirs[load])) for load in ours)
        found.append(Compared(one, ratio, by_load))
    return Verdict(tuple(found))


def _series(aim: Objective, measured: Measured, side: str) -> dict[int, list[float]]:
    """What the objective asks for, of each round at each load."""
    found: dict[int, list[float]] = {}
    for one in sorted(measured.rounds, key=lambda each: each.number):
        if one.side == side:
            value = goodput(one, aim.within) if aim.within else one.throughput
            found.setdefault(one.concurrency, []).append(value)
    return found


def _together(values: Mapping[int, Sequence[float]], pairs: int) -> list[float]:
    """The geometric mean over the loads, round by round."""
    return [
        math.exp(fmean(math.log(one[number]) for one in values.values())) for number in range(pairs)
    ]


def plain(found: Verdict) -> dict[str, Any]:
    """To be kept."""
    return {
        "refused": list(found.refused),
        "compared": [
            {
                "setting": [one.setting.steps, one.setting.topk, one.setting.tokens],
                "ratio": [one.ratio.ratio, one.ratio.low, one.ratio.high, one.ratio.pairs],
                "by_load": [list(pair) for pair in one.by_load],
            }
            for one in found.compared
        ],
    }


def from_plain(said: Mapping[str, Any]) -> Verdict:
    """As it was kept."""
    return Verdict(
        tuple(
            Compared(
                Setting(*one["setting"]),
                Interval(*one["ratio"]),
                tuple((int(load), float(ratio)) for load, ratio in one["by_load"]),
            )
            for one in said["compared"]
        ),
        tuple(said["refused"]),
    )
