"""Trials of settings: the next one to measure, and the comparison with the recipe's own setting.

Each trial is an engine start and a few rounds. Results are stored as they are measured. With one
start per setting, the fastest of many settings may be fastest by luck. The best few are therefore
measured again, in new starts and in rounds that alternate with the recipe's.

The search chooses the next trial within the budget, and ends once the setting with the best
prediction has been tried.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, Literal

from msgspec import Struct, convert

from speclaunch.core import (
    InputError,
    LaunchError,
    json_value,
    make_private,
    read_json,
    speclaunch_home,
)
from speclaunch.engine import UnknownValueError, start_time
from speclaunch.measure.bench.comparison import Serving
from speclaunch.measure.bench.engines import EngineOrder
from speclaunch.measure.bench.load_generators import Measuring, RoundLoad
from speclaunch.measure.bench.measurement import (
    ERROR_RATE,
    LEAST_PAIRS,
    ExpectedSide,
    Interval,
    Round,
    SpeedClaim,
    accepted_by_position,
    goodput,
    interval,
    objections,
)
from speclaunch.measure.bench.sides import LaunchedSide
from speclaunch.measure.bench.workload import Prompts
from speclaunch.measure.tune.model import (
    DraftSetting,
    RequestPace,
    Trial,
    TuningObjective,
    trial_models,
)
from speclaunch.serving import unfinished_work

_FILE = "tune.json"
_VERSION = 3
_START_SECONDS = 3600.0
_ROUND_SECONDS = 1800.0
OWN = "the recipe's own"


class Protocol(Struct, frozen=True):
    """Parameters for measuring a setting."""

    prompts: Prompts
    concurrencies: tuple[int, ...]
    requests: int
    """Requests per round, or twice the concurrency if that is more."""
    rounds: int

    def requests_at(self, concurrency: int) -> int:
        return max(self.requests, 2 * concurrency)


class TrialStart(Struct, frozen=True):
    """One engine start: its trials, one per load, and its duration."""

    setting: DraftSetting
    trials: tuple[Trial, ...]
    seconds: float


def measure_setting(
    setting: DraftSetting,
    order: EngineOrder,
    start: Callable[[EngineOrder], Serving],
    generator: Measuring,
    protocol: Protocol,
) -> TrialStart:
    """Return a setting's trials, measured in a new engine start. Raises LaunchError."""
    began = time.monotonic()
    engine = start(order)
    try:
        engine.wait(_START_SECONDS)
        found = measure_started(setting, order, engine, generator, protocol)
    finally:
        engine.stop()
    return TrialStart(setting, found, time.monotonic() - began)


def measure_started(
    setting: DraftSetting,
    order: EngineOrder,
    engine: Serving,
    generator: Measuring,
    protocol: Protocol,
) -> tuple[Trial, ...]:
    """Return the trial of each load, measured after a warm-up round. Raises LaunchError."""
    found = []
    for concurrency in protocol.concurrencies:
        requests = protocol.requests_at(concurrency)
        rounds = [
            generator.measure(
                RoundLoad(
                    order.name,
                    engine.url,
                    protocol.prompts,
                    concurrency,
                    requests,
                    number,
                    seed=number + 2,
                ),
                _ROUND_SECONDS,
            )
            for number in range(-1, protocol.rounds)
        ][1:]
        expected = ExpectedSide(order.name, speculates=True, drafts=setting.tokens)
        wrong = objections(rounds, (expected,), requests)
        if wrong:
            raise LaunchError(f"{setting}: the measurement does not count: {wrong[0].message}")
        found.append(trial_of(setting, rounds))
    return tuple(found)


def trial_of(setting: DraftSetting, rounds: Sequence[Round]) -> Trial:
    """Return the trial of a setting from rounds of one load.

    Speeds are medians of the rounds, so one disturbed round does not count. Acceptance covers all
    requests.
    """
    requests = [request for each in rounds for request in each.requests]
    steps = sum(request.verify_steps for request in requests)
    tokens = sum(request.tokens or 0 for request in requests)
    return Trial(
        setting,
        median(map(_step_seconds, rounds)),
        tokens / steps,
        accepted_by_position(requests),
        rounds[0].concurrency,
        median(r.throughput for r in rounds),
        median(len(r.requests) / r.seconds for r in rounds),
        tuple(
            RequestPace(request.first_token, request.latency, request.tokens or 0)
            for request in requests
        ),
    )


def _step_seconds(each: Round) -> float:
    seconds = sum(request.latency - request.first_token for request in each.requests)
    return seconds / sum(request.verify_steps for request in each.requests)


class LoadRatio(Struct, frozen=True):
    """Throughput or goodput at one concurrency, as a ratio to the recipe's own setting."""

    concurrency: int
    ratio: float


class Compared(Struct, frozen=True):
    """A setting compared with the recipe's own."""

    setting: DraftSetting
    ratio: Interval
    """Ratio of the objective to that of the recipe's own setting; geometric mean over loads."""
    by_load: tuple[LoadRatio, ...]

    @property
    def claim(self) -> Literal["faster", "slower", "not shown"]:
        if self.ratio.claim is SpeedClaim.NOT_SHOWN:
            return "not shown"
        return "faster" if self.ratio.claim is SpeedClaim.PAYS else "slower"


class TuningVerdict(Struct, frozen=True):
    """Result of the comparison; `refused`: reasons why it does not count."""

    compared: tuple[Compared, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def winner(self) -> Compared | None:
        """Best setting shown to be faster; None: the recipe remains unchanged."""
        faster = [compared for compared in self.compared if compared.claim == "faster"]
        return max(faster, key=lambda compared: compared.ratio.ratio, default=None)


def verdict(
    aim: TuningObjective,
    protocol: Protocol,
    settings: Sequence[DraftSetting],
    rounds: Sequence[Round],
    starts: int = 1,
) -> TuningVerdict:
    """Return how `settings` compare with the recipe's own setting in `rounds`.

    `Round.side` is a setting as text. `starts`: engine starts per side.
    """
    sides = [ExpectedSide(OWN, speculates=True)]
    sides += [
        ExpectedSide(str(setting), speculates=True, drafts=setting.tokens) for setting in settings
    ]
    refused: list[str] = []
    for load in aim.concurrencies:
        there = [r for r in rounds if r.concurrency == load]
        refused += [
            objection.message for objection in objections(there, sides, protocol.requests_at(load))
        ]
    if refused:
        return TuningVerdict(refused=tuple(dict.fromkeys(refused)))
    confidence = 1 - ERROR_RATE / len(settings)
    found = []
    for setting in settings:
        ours, theirs = _series(aim, rounds, str(setting)), _series(aim, rounds, OWN)
        pairs = min(len(next(iter(ours.values()))), len(next(iter(theirs.values()))))
        least = max(LEAST_PAIRS, starts)
        if pairs < least:
            return TuningVerdict(
                refused=(f"{pairs} pairs of rounds are too few; {least} are needed",)
            )
        if min(min(values) for values in (*ours.values(), *theirs.values())) <= 0:
            return TuningVerdict(refused=("in one round, no request met the bounds",))
        ratio = interval(_together(ours, pairs), _together(theirs, pairs), confidence, starts)
        by_load = tuple(LoadRatio(load, median(ours[load]) / median(theirs[load])) for load in ours)
        found.append(Compared(setting, ratio, by_load))
    return TuningVerdict(tuple(found))


def _series(aim: TuningObjective, rounds: Sequence[Round], side: str) -> dict[int, list[float]]:
    """Return the objective's value in each round of a side, by load."""
    found: dict[int, list[float]] = {}
    for round_ in sorted(rounds, key=lambda each: each.number):
        if round_.side == side:
            value = goodput(round_, aim.within) if aim.within else round_.throughput
            found.setdefault(round_.concurrency, []).append(value)
    return found


def _together(values: Mapping[int, Sequence[float]], pairs: int) -> list[float]:
    """Return the geometric mean over the loads for each of the first `pairs` rounds."""
    return [
        math.exp(fmean(math.log(ratios[number]) for ratios in values.values()))
        for number in range(pairs)
    ]


class Verified(Struct, frozen=True):
    """The comparison of the best settings, and its parameters."""

    settings: tuple[str, ...]
    starts_each: int
    verdict: TuningVerdict


class StoredStarts(Struct, frozen=True):
    """Stored engine starts of one tuning problem."""

    path: Path
    starts: tuple[TrialStart, ...] = ()
    failed: Mapping[str, str] = {}
    """Settings that could not be measured, with reasons."""
    verified: Verified | None = None
    """Result of the last comparison of the best settings; None before the first."""
    compared: int = 0
    """Number of engine starts for comparisons, including comparisons that do not count."""

    @property
    def tried(self) -> int:
        """Number of starts that tried a setting, successfully or not."""
        return len(self.starts) + len(self.failed)

    @property
    def count(self) -> int:
        """Number of engine starts, including comparisons."""
        return self.tried + self.compared

    @property
    def seconds(self) -> float:
        return sum(start.seconds for start in self.starts)

    def write(self) -> None:
        """Replace the stored file atomically. Raises InputError if writing fails."""
        document = {
            "version": _VERSION,
            "starts": json_value(self.starts),
            "failed": dict(self.failed),
            "verified": json_value(self.verified),
            "compared": self.compared,
        }
        unfinished_work.write(self.path, document)


def stored_starts(key: str, *, fresh: bool) -> StoredStarts:
    """Return earlier measurements of a tuning problem; `fresh` deletes them. Raises InputError."""
    folder = speclaunch_home() / "tunes" / key
    try:
        make_private(folder)
        if fresh:
            (folder / _FILE).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}") from error
    document = read_json(folder / _FILE)
    if document is None or document.get("version") != _VERSION:
        return StoredStarts(folder / _FILE)
    return StoredStarts(
        folder / _FILE,
        convert(document["starts"], tuple[TrialStart, ...]),
        document["failed"],
        convert(_by_name(document["verified"]), Verified | None),
        document["compared"],
    )


def _by_name(verified: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a stored comparison, if any, with named fields; earlier versions stored lists."""
    if verified is None:
        return None

    def named(kind: Any, value: Any) -> Any:
        names = kind.__struct_fields__
        return dict(zip(names, value, strict=True)) if isinstance(value, list) else value

    found = [
        {
            "setting": named(DraftSetting, entry["setting"]),
            "ratio": named(Interval, entry["ratio"]),
            "by_load": [named(LoadRatio, load) for load in entry["by_load"]],
        }
        for entry in verified["verdict"]["compared"]
    ]
    return {**verified, "verdict": {**verified["verdict"], "compared": found}}


_WORTH = 1.02
"""Predicted ratio to the best setting so far below which a trial is not worthwhile."""
_LEAST_TRIED = 2
_SECONDS_A_START = 600
"""Estimated seconds of an engine start, if unknown."""
_SECONDS_A_ROUND = 10.0
"""Estimated seconds of a round, until the first start is measured."""


def first_settings(
    space: Sequence[DraftSetting],
    own: DraftSetting | None,
    published: DraftSetting | None = None,
) -> tuple[DraftSetting, ...]:
    """Return the settings to try first.

    They are the recipe's own setting, the published setting, and those that the model needs: a
    short chain, a long chain and a tree. NGRAM spreads a longer draft over more branches, so a
    medium chain is added.
    """
    ordered = sorted(space, key=lambda setting: setting.tokens)
    chains = [setting for setting in ordered if setting.topk == 1]
    trees = [setting for setting in ordered if setting.topk > 1]
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
    """Return the next setting (None to stop) and the reason. `most`: maximum number of settings."""
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
    """Return an untried neighbor of the best NGRAM setting; None if there is none."""
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
    tried = dict.fromkeys(trial.setting for trial in trials)
    return tuple(sorted(tried, key=lambda setting: -model.score(setting)))


class TuningBudget(Struct, frozen=True):
    """Maximum starts and seconds, including those reserved for the final comparison."""

    starts: int
    seconds: float | None
    verified: int
    """Starts reserved for the final comparison."""

    @property
    def tried(self) -> int:
        """Number of starts available to try settings."""
        return self.starts - self.verified


def budget(starts: int, minutes: float | None, verified: int) -> TuningBudget:
    """Return the budget. Raises InputError if too few starts remain to try settings."""
    if starts - verified < _LEAST_TRIED:
        raise InputError(
            f"--starts {starts}: too few for the {verified} starts of --verify and at least "
            f"{_LEAST_TRIED} settings",
            help=f"set --starts {verified + _LEAST_TRIED}, or set --verify 1",
        )
    return TuningBudget(starts, None if minutes is None else 60 * minutes, verified)


class Expectation(Struct, frozen=True):
    """Expected seconds of a trial start, and of the comparison of the best settings."""

    start: float
    comparison: float

    def fits(self, limit: TuningBudget, spent: float) -> bool:
        return limit.seconds is None or spent + self.start + self.comparison <= limit.seconds


def expectation(
    side: LaunchedSide,
    protocol: Protocol,
    limit: TuningBudget,
    rounds: int,
    done: Sequence[TrialStart],
) -> Expectation:
    """Return the expectation from finished starts, or the slowest estimate if there are none.

    `rounds`: rounds per side of the final comparison.
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
