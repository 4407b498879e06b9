"""Tunable settings, their speed model fitted to trials, and the tuning objective.

A verify step of the engine yields L tokens and takes T seconds; the throughput is L / T.

- T is the time of the target, the draft's steps, and the verified tokens:
  `a + b * steps + c * tokens`, with nonnegative coefficients, fitted to the measurements.
- L is 1 plus the sum over all positions of the probability that the draft is accepted. The engine
  counts accepted drafts (0.5.23: `spec_correct_drafts_histogram`). The probability of a correct
  draft after correct drafts falls slowly, and is assumed to keep falling at the last rate. In a
  tree with b candidates at a position, the probability that none is correct is the chain's to the
  power of b ** gamma. Further candidates are worth less than the best; gamma is fitted to the
  measured trees.

Measured settings use their measured values.

Tuning objectives: latency of one request, throughput at one or more loads, or goodput. Speed is
tokens per second of one request during decode. At one load, a deployment's throughput is speed
times load. Several loads are combined by geometric mean.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import combinations
from operator import mul
from typing import Any

from msgspec import Struct

from speclaunch.checks import all_rules, check_request, tree_capacity
from speclaunch.core import COMMAND_LINE, InputError, LaunchError, Place
from speclaunch.deployments import with_overrides
from speclaunch.engine import (
    DRAFT_PATH,
    EAGLE_HANDLER,
    UnknownValueError,
    published_acceptance,
    start_setting,
)
from speclaunch.measure.bench.engines import EngineOrder
from speclaunch.measure.bench.measurement import Bound, MeasuredRequest, bounds
from speclaunch.measure.bench.sides import LaunchedSide
from speclaunch.serving import free_port

_STEPS = (1, 2, 3, 4, 5, 6, 7, 8)
_TOPK = (1, 2, 4, 8)
_TREES = (4, 6, 8, 12, 16, 24, 32, 48, 64)
_NGRAM = (2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32)
NGRAM = "NGRAM"


class DraftSetting(Struct, frozen=True):
    """A draft setting. `steps` is 0 for NGRAM, which looks up an entire tree at once."""

    steps: int
    topk: int
    tokens: int
    """Tokens per verify step, including the root."""

    @property
    def arguments(self) -> dict[str, Any]:
        if not self.steps:
            return {"speculative_num_draft_tokens": self.tokens}
        return {
            "speculative_num_steps": self.steps,
            "speculative_eagle_topk": self.topk,
            "speculative_num_draft_tokens": self.tokens,
        }

    def __str__(self) -> str:
        if not self.steps:
            return f"{self.tokens} draft tokens"
        return f"steps {self.steps}, topk {self.topk}, {self.tokens} draft tokens"


def settings(algorithm: str, most: int | None = None) -> tuple[DraftSetting, ...]:
    """Return an algorithm's useful settings with at most `most` draft tokens (None: no limit).

    A release may reject some, and some may not fit in memory.
    """
    return tuple(
        setting for setting in _settings(algorithm) if most is None or setting.tokens <= most
    )


def _settings(algorithm: str) -> Iterator[DraftSetting]:
    if algorithm == NGRAM:
        for tokens in _NGRAM:
            yield DraftSetting(0, 1, tokens)
    elif algorithm in EAGLE_HANDLER:  # the width of other algorithms is fixed by their draft
        for steps in _STEPS:
            for topk in _TOPK:
                if topk == 1:
                    yield DraftSetting(steps, 1, steps + 1)
                    continue
                for tokens in _TREES:
                    if steps < tokens <= tree_capacity(steps, topk):
                        yield DraftSetting(steps, topk, tokens)


def algorithm_of(side: LaunchedSide) -> str:
    """Return the algorithm that the engine resolves. Raises InputError if nothing is tunable."""
    try:
        found = side.plan.algorithm
    except UnknownValueError:
        found = None
    name = side.prepared.recipe.deployment.name
    if side.expected.simulated:
        raise InputError(
            f"{name}: {side.expected.simulated} simulates acceptance, so settings cannot be "
            "measured",
            help=f"unset {side.expected.simulated}",
        )
    if found is None:
        raise InputError(
            f"{name} does not speculate, so there is nothing to tune",
            help="name a recipe that sets speculative_algorithm",
        )
    if not settings(found):
        raise InputError(
            f"{name}: {found} has no settings to tune",
            help="use EAGLE, EAGLE3, MTP, STANDALONE or NGRAM; other drafts have a fixed width",
        )
    return found


def possible(
    side: LaunchedSide, algorithm: str, most: int | None = None
) -> tuple[DraftSetting, ...]:
    """Return the settings for which no rule reports an error on this release and hardware.

    `most`: maximum draft tokens. Raises InputError if there are none.
    """
    found = []
    for setting in settings(algorithm, most):
        try:
            changed = side.prepared.changed(setting.arguments)
        except LaunchError:
            continue
        result = check_request(changed.request(os.environ), side.lookup, all_rules()).results
        if not result.errors:
            found.append(setting)
    if not found:
        raise InputError("no setting passes the rules", help="see why with `speclaunch plan`")
    return tuple(found)


def own_setting(side: LaunchedSide, algorithm: str) -> DraftSetting | None:
    """Return the recipe's own setting as the engine resolves it; None if unknown."""

    def number(name: str) -> int:
        return int(side.plan.value(name) or 0)

    try:
        tokens = number("speculative_num_draft_tokens")
        if algorithm == NGRAM:
            return DraftSetting(0, 1, tokens)
        return DraftSetting(
            number("speculative_num_steps"), number("speculative_eagle_topk"), tokens
        )
    except UnknownValueError:
        return None


def published_setting(side: LaunchedSide, algorithm: str) -> DraftSetting | None:
    """Return the published setting to beat; None for NGRAM or an unknown model.

    It is the draft's fastest published chain, or without one 5 steps, topk 1, 6 tokens
    (`engine.start_setting`).
    """
    if algorithm == NGRAM:
        return None
    try:
        target, draft = side.plan.value("model_path"), side.plan.value(DRAFT_PATH)
    except UnknownValueError:
        return None
    found = published_acceptance(str(target), str(draft) if draft else None, own=not draft)
    return DraftSetting(*start_setting(found).setting)


def order_of(side: LaunchedSide, setting: DraftSetting, name: str | None = None) -> EngineOrder:
    """Return an order to launch the deployment with a setting on a free port."""
    order = side.order(free_port())
    words = with_overrides(order.words, override_words(setting))
    return EngineOrder(name or order.name, words, order.port)


def override_words(setting: DraftSetting) -> tuple[str, ...]:
    """Return the setting as overrides of a recipe: `args.NAME=VALUE`."""
    return tuple(f"args.{name}={value}" for name, value in setting.arguments.items())


_GAMMA = 0.6
_MOST = 0.999
_NOTHING = 1e-9
_GAMMAS = tuple(step / 20 for step in range(31))


class RequestPace(Struct, frozen=True):
    """Times of a request in seconds, and its token count."""

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
    """Shares of verify steps that accepted at least 1, 2, … drafts; empty if not reported."""
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
    """Probabilities of a correct draft by position, given that all earlier drafts are correct."""
    gamma: float
    tried: tuple[Trial, ...]

    def speed(self, setting: DraftSetting) -> float:
        """Return a setting's tokens per second: measured if tried, else predicted."""
        for trial in self.tried:
            if trial.setting == setting:
                return trial.speed
        return self.accept_length(setting) / self.step_seconds(setting)

    def step_seconds(self, setting: DraftSetting) -> float:
        return self.base + self.by_step * setting.steps + self.by_token * setting.tokens

    def accept_length(self, setting: DraftSetting) -> float:
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
    """Return the nonnegative costs a, b and c with the least squared relative errors.

    All subsets of nonzero costs are tried.
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
    """Solve `matrix` · x = the `chosen` entries of `right`; return None if rows are dependent."""
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


_MOST_CONCURRENCY = 4096
_FORM = re.compile(r"(latency|throughput|goodput)(?:@(\d{1,6}(?:,\d{1,6})*))?(?::(.+))?\Z")
_HELP = "use latency, throughput@8, throughput@1,8,32, or goodput@8:ttft=500,tpot=50"
_NEXT_TO_NOTHING = 1e-6
_BETTER_IF_FASTER = 1e-3


class Aim(StrEnum):
    """Quantities that `--objective` optimizes."""

    LATENCY = "latency"
    THROUGHPUT = "throughput"
    GOODPUT = "goodput"


class TuningObjective(Struct, frozen=True):
    """Tuning objective at one or more loads (`concurrencies`)."""

    aim: Aim
    concurrencies: tuple[int, ...]
    within: tuple[Bound, ...] = ()
    """Goodput bounds; empty for other objectives."""

    def __str__(self) -> str:
        if self.aim is Aim.LATENCY:
            return self.aim.value
        text = f"{self.aim.value}@{','.join(map(str, self.concurrencies))}"
        return f"{text}:{','.join(map(str, self.within))}" if self.within else text


def objective(text: str) -> TuningObjective:
    """Parse the value of `--objective`. Raises InputError."""
    found = _FORM.match(text.strip())
    if found is None:
        raise _refused(text, f"unknown objective {text!r}")
    aim, loads, rest = Aim(found[1]), found[2], found[3]
    numbers = tuple(dict.fromkeys(map(int, loads.split(",")))) if loads else ()
    if aim is Aim.LATENCY:
        if loads or rest:
            raise _refused(text, "latency measures one request at a time")
        return TuningObjective(aim, (1,))
    if not numbers or not all(1 <= number <= _MOST_CONCURRENCY for number in numbers):
        raise _refused(text, f"{aim.value} needs a load from 1 to {_MOST_CONCURRENCY}")
    if (aim is Aim.GOODPUT) != bool(rest):
        what = "goodput needs bounds" if aim is Aim.GOODPUT else "throughput has no bounds"
        raise _refused(text, what)
    return TuningObjective(aim, numbers, bounds(rest) if rest else ())


def _refused(text: str, reason: str) -> InputError:
    return InputError(reason, Place(COMMAND_LINE, text=f"--objective {text}"), _HELP)


def worth(trial: Trial, within: Sequence[Bound], slower: float = 1.0) -> float:
    """Return a trial's speed; with bounds, the requests per second that meet them.

    `slower`: factor that scales the time per token.
    """
    if not within:
        return trial.speed / slower
    requests = [_slowed(pace, slower) for pace in trial.paces]
    met = sum(all(bound.is_met(request) for bound in within) for request in requests)
    share = met / len(requests) if requests else 0.0
    # if no request meets the bounds, a faster setting is closer to them
    nearer = _BETTER_IF_FASTER * trial.speed / slower
    return share * trial.requests_per_second / slower + _NEXT_TO_NOTHING * nearer


def _slowed(pace: RequestPace, slower: float) -> MeasuredRequest:
    """Return a request whose time after the first token is scaled by `slower`."""
    latency = pace.first_token + slower * (pace.latency - pace.first_token)
    return MeasuredRequest(
        ok=True,
        error="",
        latency=latency,
        first_token=pace.first_token,
        requested=pace.tokens,
        tokens=pace.tokens,
        prompt=0,
        cached=0,
        characters=0,
        verify_steps=0,
    )


class TrialModels(Struct, frozen=True):
    """The objective, and the fitted model for each load."""

    objective: TuningObjective
    models: Mapping[int, SpeedModel]

    def score(self, setting: DraftSetting) -> float:
        """Return a setting's log score, averaged over loads: measured if tried, else predicted."""
        within = self.objective.within
        found = []
        for model in self.models.values():
            tried = next((trial for trial in model.tried if trial.setting == setting), None)
            if tried is None:
                speed = model.speed(setting)
                near = min(model.tried, key=lambda trial: abs(math.log(trial.speed / speed)))
                found.append(math.log(worth(near, within, near.speed / speed)))
            else:
                found.append(math.log(worth(tried, within)))
        return sum(found) / len(found)


def trial_models(aim: TuningObjective, trials: Sequence[Trial]) -> TrialModels:
    """Return a model for each load, fitted to its trials (at least one)."""
    models = {
        load: fitted([trial for trial in trials if trial.concurrency == load])
        for load in aim.concurrencies
    }
    return TrialModels(aim, models)
