"""Tuning objectives: latency of one request, throughput at one or more loads, or goodput.

Speed is tokens per second of one request during decode. At one load, a deployment's throughput is
speed times load. Several loads have equal weight: the geometric mean.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from speclaunch.core import COMMAND_LINE, InputError, Place, Problem
from speclaunch.measure.bench.measurement import Bound, MeasuredRequest, bounds
from speclaunch.measure.tune.model import RequestPace, SpeedModel, Trial, fitted
from speclaunch.measure.tune.space import DraftSetting

_MOST = 4096
_FORM = re.compile(r"(latency|throughput|goodput)(?:@(\d{1,6}(?:,\d{1,6})*))?(?::(.+))?\Z")
_HELP = "use latency, throughput@8, throughput@1,8,32, or goodput@8:ttft=500,tpot=50"
_NEXT_TO_NOTHING = 1e-6
_BETTER_IF_FASTER = 1e-3


class Aim(StrEnum):
    """Values of `--objective`."""

    LATENCY = "latency"
    THROUGHPUT = "throughput"
    GOODPUT = "goodput"


class TuningObjective(Struct, frozen=True):
    """Tuning objective, with its numbers of concurrent requests."""

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
    if not numbers or not all(1 <= number <= _MOST for number in numbers):
        raise _refused(text, f"{aim.value} needs a load from 1 to {_MOST}")
    if (aim is Aim.GOODPUT) != bool(rest):
        what = "goodput needs bounds" if aim is Aim.GOODPUT else "throughput has no bounds"
        raise _refused(text, what)
    return TuningObjective(aim, numbers, bounds(rest) if rest else ())


def _refused(text: str, reason: str) -> InputError:
    return InputError(Problem(reason, Place(COMMAND_LINE, text=f"--objective {text}"), _HELP))


def worth(trial: Trial, within: Sequence[Bound], slower: float = 1.0) -> float:
    """Return the score of a trial; with bounds, the requests per second that meet them.

    `slower`: factor by which token time is scaled.
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
    """Return a request whose token times after the first are scaled by `slower`."""
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
        proposed=0,
    )


class TrialModels(Struct, frozen=True):
    """All trials, and the models of each tried load."""

    objective: TuningObjective
    models: Mapping[int, SpeedModel]

    def score(self, setting: DraftSetting) -> float:
        """Return the logarithm of a setting's score: measured if tried, else predicted."""
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
    """Return the models for trials at every load; needs at least one trial per load."""
    models = {
        load: fitted([trial for trial in trials if trial.concurrency == load])
        for load in aim.concurrencies
    }
    return TrialModels(aim, models)
