"""Search for the best setting: choose the next trial within the budget.

The search ends once the setting with the best prediction has been tried.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from statistics import fmean

from msgspec import Struct

from speclaunch.core import InputError, Problem
from speclaunch.engine import UnknownValueError, start_time
from speclaunch.measure.bench.sides import LaunchedSide
from speclaunch.measure.tune.model import Trial
from speclaunch.measure.tune.objective import TuningObjective, trial_models
from speclaunch.measure.tune.space import DraftSetting
from speclaunch.measure.tune.trials import Protocol, TrialStart

_WORTH = 1.02
"""Minimum predicted gain over the best setting so far that justifies a trial."""
_LEAST_TRIED = 2
_SECONDS_A_START = 600
"""Estimate of an engine's start time, if unknown."""
_SECONDS_A_ROUND = 10.0
"""Estimate of a round's time, until the first start is measured."""


def first_settings(
    space: Sequence[DraftSetting],
    own: DraftSetting | None,
    published: DraftSetting | None = None,
) -> tuple[DraftSetting, ...]:
    """Return the settings to try first.

    The recipe's own setting, the published setting, which the best must beat, and those that the
    performance model needs: a short chain, a long chain and a tree.
    NGRAM spreads a longer draft over more branches, so it also gets a chain in between.
    """
    chains = sorted(
        (setting for setting in space if setting.topk == 1), key=lambda setting: setting.tokens
    )
    trees = sorted(
        (setting for setting in space if setting.topk > 1), key=lambda setting: setting.tokens
    )
    found = [setting for setting in (own, published) if setting is not None and setting in space]
    found += chains[-1:] + chains[:1]
    found += trees[len(trees) // 2 :][:1]
    if not any(setting.steps for setting in space):
        found += chains[len(chains) // 2 :][:1]
    return tuple(dict.fromkeys(found))


def next_trial(
    aim: TuningObjective,
    space: Sequence[DraftSetting],
    own: DraftSetting | None,
    trials: Sequence[Trial],
    most: int,
    published: DraftSetting | None = None,
) -> tuple[DraftSetting | None, str]:
    """Return the next setting, or None to stop, and the reason. `most`: maximum settings."""
    tried = {trial.setting for trial in trials}
    for setting in first_settings(space, own, published):
        if setting not in tried and len(tried) < most:
            is_published = setting == published != own
            return (setting, "published" if is_published else "required by the model")
    if len(tried) >= most:
        return (None, f"{most} settings were tried")
    left = [setting for setting in space if setting not in tried]
    if not left:
        return (None, "all settings were tried")
    model = trial_models(aim, trials)
    found = max(left, key=model.score)
    gain = math.exp(model.score(found) - max(map(model.score, tried)))
    neighbor = _neighbor(space, tried, max(tried, key=model.score))
    if gain < _WORTH and neighbor is not None:
        return (neighbor, "next to the best so far")
    if gain < _WORTH:
        return (None, "no other setting is predicted to be better")
    return (found, f"predicted {gain:.2f} times as good as the best so far")


def _neighbor(
    space: Sequence[DraftSetting], tried: Collection[DraftSetting], best: DraftSetting
) -> DraftSetting | None:
    """Return an untried neighbor of the best NGRAM setting, whose acceptance no model predicts."""
    if any(setting.steps for setting in space):
        return None
    order = sorted({*space, best}, key=lambda setting: setting.tokens)
    at = order.index(best)
    near = [order[other] for other in (at - 1, at + 1) if 0 <= other < len(order)]
    return next((setting for setting in near if setting not in tried), None)


def ranked(aim: TuningObjective, trials: Sequence[Trial]) -> tuple[DraftSetting, ...]:
    """Return the tried settings, best first."""
    if not trials:
        return ()
    model = trial_models(aim, trials)
    return tuple(
        sorted(
            dict.fromkeys(trial.setting for trial in trials),
            key=lambda setting: -model.score(setting),
        )
    )


class TuningBudget(Struct, frozen=True):
    """Maximum starts and seconds, including those reserved for the final comparison."""

    starts: int
    seconds: float | None
    verified: int
    """Starts reserved for the final comparison."""

    @property
    def tried(self) -> int:
        """Starts available to try settings."""
        return self.starts - self.verified


def budget(starts: int, minutes: float | None, verified: int) -> TuningBudget:
    """Return the budget. Raises InputError if too few starts remain to try settings."""
    if starts - verified < _LEAST_TRIED:
        raise InputError(
            Problem(
                f"--starts {starts}: too few for the {verified} starts of --verify and at least "
                f"{_LEAST_TRIED} settings",
                help=f"set --starts {verified + _LEAST_TRIED}, or compare fewer with --verify 1",
            )
        )
    return TuningBudget(starts, None if minutes is None else 60 * minutes, verified)


class Expectation(Struct, frozen=True):
    """Expected seconds of a trial start, and of the comparison of the best settings."""

    start: float
    comparison: float

    def fits(self, limit: TuningBudget, spent: float) -> bool:
        """True if another start and the final comparison fit within the budget."""
        return limit.seconds is None or spent + self.start + self.comparison <= limit.seconds


def expectation(
    side: LaunchedSide,
    protocol: Protocol,
    limit: TuningBudget,
    rounds: int,
    done: Sequence[TrialStart],
) -> Expectation:
    """Return the expectation from finished starts, or from the slowest estimate before any.

    `rounds`: rounds of each side of the comparison.
    """
    own = (protocol.rounds + 1) * len(protocol.concurrencies)
    first = _slowest(side) + own * _SECONDS_A_ROUND
    start = fmean(trial_start.seconds for trial_start in done) if done else first
    # the share of rounds in a start is unknown; assume all of it
    compared = limit.verified * start * max(1.0, rounds * len(protocol.concurrencies) / own)
    return Expectation(start, compared)


def _slowest(side: LaunchedSide) -> float:
    try:
        return float(start_time(side.plan).seconds)
    except UnknownValueError:
        return float(_SECONDS_A_START)
