"""Model of a setting's speed, fitted to the measured settings.

A verify step of the engine yields L tokens and takes T seconds; the throughput is L / T.

- T is the sum of the target's own time, the draft's steps, and the verified tokens:
  `a + b * steps + c * tokens`, with nonnegative coefficients, fitted to the measurements.
- L is 1 plus the probability that the draft at each position is accepted. The engine counts these
  (0.5.23: `spec_correct_drafts_histogram`). The probability of a correct draft after correct
  drafts falls slowly; later positions are assumed to fall at the last rate. In a tree with b
  candidates at a position, the probability that none is correct is the chain's to the power of
  b ** gamma. Further candidates are worth less than the best; gamma is fitted to the measured
  trees.

Measured settings use their measured values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from operator import mul

from msgspec import Struct

from speclaunch.measure.tune.space import DraftSetting

_GAMMA = 0.6
_MOST = 0.999
_NOTHING = 1e-9
_GAMMAS = tuple(step / 20 for step in range(31))


class RequestPace(Struct, frozen=True):
    """Duration of a request in seconds."""

    first_token: float
    latency: float
    tokens: int


class Trial(Struct, frozen=True):
    """A setting measured at one load."""

    setting: DraftSetting
    step_seconds: float
    """Seconds per verify step, including all time between two steps."""
    accept_length: float
    """Tokens per verify step."""
    accepted: tuple[float, ...] = ()
    """Share of verify steps that accepted at least 1, 2, … drafts; empty: not reported."""
    concurrency: int = 1
    throughput: float = 0.0
    """Output tokens per second of all requests together."""
    requests_per_second: float = 0.0
    paces: tuple[RequestPace, ...] = ()

    @property
    def speed(self) -> float:
        """Tokens per second of one request."""
        return self.accept_length / self.step_seconds


class SpeedModel(Struct, frozen=True):
    """Cost coefficients of a verify step, and probabilities of correct drafts."""

    base: float
    by_step: float
    by_token: float
    hits: tuple[float, ...]
    """Probability of a correct candidate at each position, given that all earlier are correct."""
    gamma: float
    tried: tuple[Trial, ...]

    def speed(self, setting: DraftSetting) -> float:
        """Return a setting's tokens per second: measured if tried, else predicted."""
        for trial in self.tried:
            if trial.setting == setting:
                return trial.speed
        return self.accept_length(setting) / self.step_seconds(setting)

    def step_seconds(self, setting: DraftSetting) -> float:
        """Return the seconds of a verify step."""
        return self.base + self.by_step * setting.steps + self.by_token * setting.tokens

    def accept_length(self, setting: DraftSetting) -> float:
        """Return the tokens per verify step."""
        return 1 + sum(_shares(setting, self.hits, self.gamma))


def fitted(trials: Sequence[Trial]) -> SpeedModel:
    """Return the model fitted to one or more trials."""
    base, by_step, by_token = _costs(trials)
    hits = _hits(trials)
    return SpeedModel(base, by_step, by_token, hits, _gamma(trials, hits), tuple(trials))


def _depth(setting: DraftSetting) -> int:
    return setting.steps or setting.tokens - 1


def _candidates(setting: DraftSetting) -> float:
    """Return the average number of candidates at a position."""
    if setting.topk == 1:
        return 1.0
    return min(float(setting.topk), max(1.0, (setting.tokens - 1) / setting.steps))


def _shares(setting: DraftSetting, hits: Sequence[float], gamma: float) -> list[float]:
    """Return the probabilities that at least 1, 2, … drafts are accepted."""
    power = _candidates(setting) ** gamma
    found: list[float] = []
    share = 1.0
    for position in range(_depth(setting)):
        hit = hits[min(position, len(hits) - 1)]
        if position >= len(hits):  # extrapolate from the last known positions
            fall = hits[-1] / hits[-2] if len(hits) > 1 and hits[-2] > 0 else 1.0
            hit = hits[-1] * min(1.0, fall) ** (position - len(hits) + 1)
        share *= 1 - (1 - hit) ** power
        found.append(share)
    return found


def _hits(trials: Sequence[Trial]) -> tuple[float, ...]:
    """Return the hit rates of the deepest chain; without a chain, of a tree treated as a chain."""
    deepest = max(trials, key=lambda trial: (trial.setting.topk == 1, _depth(trial.setting)))
    if deepest.accepted:
        found: list[float] = []
        before = 1.0
        for share in deepest.accepted[: _depth(deepest.setting)]:
            if share <= 0:
                break
            found.append(min(_MOST, share / before))
            before = share
        if len(found) < _depth(deepest.setting):  # no draft was accepted at further positions
            found.append(0.0)
        return tuple(found)
    return (_even_hit(deepest),)


def _even_hit(trial: Trial) -> float:
    """Return the uniform hit probability that gives the measured acceptance length."""
    low, high = 0.0, _MOST
    for _ in range(50):
        middle = (low + high) / 2
        length = 1 + sum(middle**position for position in range(1, _depth(trial.setting) + 1))
        low, high = (middle, high) if length < trial.accept_length else (low, middle)
    return (low + high) / 2


def _gamma(trials: Sequence[Trial], hits: Sequence[float]) -> float:
    trees = [trial for trial in trials if trial.setting.topk > 1]
    if not trees:
        return _GAMMA

    def error(gamma: float) -> float:
        return sum(
            math.log((1 + sum(_shares(trial.setting, hits, gamma))) / trial.accept_length) ** 2
            for trial in trees
        )

    return min(_GAMMAS, key=error)


def _costs(trials: Sequence[Trial]) -> tuple[float, float, float]:
    """Return the nonnegative costs with the least squared relative errors.

    Tries all subsets of nonzero costs, and takes the best nonnegative solution.
    """
    rows = [(1.0, float(trial.setting.steps), float(trial.setting.tokens)) for trial in trials]
    scaled = [
        [part / trial.step_seconds for part in row] for row, trial in zip(rows, trials, strict=True)
    ]
    gram = [[sum(row[i] * row[j] for row in scaled) for j in range(3)] for i in range(3)]
    right = [sum(row[i] for row in scaled) for i in range(3)]
    best, least = (min(trial.step_seconds for trial in trials), 0.0, 0.0), math.inf
    for size in (1, 2, 3):
        for chosen in combinations(range(3), size):
            solved = _solved([[gram[i][j] for j in chosen] for i in chosen], chosen, right)
            if solved is None or min(solved) < 0:
                continue
            costs = [0.0, 0.0, 0.0]
            for index, value in zip(chosen, solved, strict=True):
                costs[index] = value
            error = sum((1 - sum(map(mul, costs, row))) ** 2 for row in scaled)
            if error < least - _NOTHING:
                best, least = (costs[0], costs[1], costs[2]), error
    return best


def _solved(
    matrix: list[list[float]], chosen: Sequence[int], right: Sequence[float]
) -> list[float] | None:
    """Return the solution of a symmetric system; None if its rows are dependent."""
    size = len(matrix)
    rows = [[*row, right[index]] for row, index in zip(matrix, chosen, strict=True)]
    for at in range(size):
        pivot = max(range(at, size), key=lambda number: abs(rows[number][at]))
        rows[at], rows[pivot] = rows[pivot], rows[at]
        if abs(rows[at][at]) <= _NOTHING * matrix[at][at]:
            return None
        rows[at] = [value / rows[at][at] for value in rows[at]]
        for other in range(size):
            if other != at:
                factor = rows[other][at]
                rows[other] = [x - factor * y for x, y in zip(rows[other], rows[at], strict=True)]
    return [row[-1] for row in rows]
