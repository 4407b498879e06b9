"""Trials of settings: each an engine start and a few rounds; kept as they are measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from statistics import median
from typing import Any

from speclaunch.bench.comparison import Measuring, Serving
from speclaunch.bench.engines import Order
from speclaunch.bench.gate import Expected, objections
from speclaunch.bench.generator import Load
from speclaunch.bench.measurement import Measured, Round, accepted_by_position
from speclaunch.bench.workload import Prompts
from speclaunch.errors import InputError, LaunchError, Problem
from speclaunch.home import make_private, speclaunch_home
from speclaunch.launch import kept_work
from speclaunch.launch.atomic_files import read_json
from speclaunch.record import record
from speclaunch.tuning.model import Pace, Trial
from speclaunch.tuning.setting import Setting

_FILE = "tune.json"
_VERSION = 3
_START_SECONDS = 3600.0
_ROUND_SECONDS = 1800.0


@record
class Protocol:
    """How a setting is measured."""

    prompts: Prompts
    concurrencies: tuple[int, ...]
    requests: int
    """Of a round, at least: a load has at least twice its own number."""
    rounds: int

    def requests_at(self, concurrency: int) -> int:
        """How many requests a round has."""
        return max(self.requests, 2 * concurrency)


@record
class Start:
    """One start of an engine: its trials, one a load, and how long it took."""

    setting: Setting
    trials: tuple[Trial, ...]
    seconds: float


def measure(
    setting: Setting,
    order: Order,
    start: Callable[[Order], Serving],
    generator: Measuring,
    protocol: Protocol,
) -> Start:
    """One start, and its rounds; no engine is left. Raises LaunchError."""
    began = time.monotonic()
    engine = start(order)
    try:
        engine.wait(_START_SECONDS)
        found = measure_started(setting, order, engine, generator, protocol)
    finally:
        engine.stop()
    return Start(setting, found, time.monotonic() - began)


def measure_started(
    setting: Setting, order: Order, engine: Serving, generator: Measuring, protocol: Protocol
) -> tuple[Trial, ...]:
    """At each load a round that warms up, then the rounds that count. Raises LaunchError."""
    found = []
    for concurrency in protocol.concurrencies:
        requests = protocol.requests_at(concurrency)
        rounds = [
            generator.measure(
                Load(
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
        expected = Expected(order.name, speculates=True, drafts=setting.tokens)
        wrong = objections(Measured(tuple(rounds)), (expected,), requests)
        if wrong:
            raise LaunchError(f"{setting}: the measurement does not count: {wrong[0].message}")
        found.append(trial_of(setting, rounds))
    return tuple(found)


def trial_of(setting: Setting, rounds: Sequence[Round]) -> Trial:
    """What rounds of one load say of a setting. Times are the median round's: one that was
    disturbed does not count; the acceptance is that of all requests."""
    requests = [one for each in rounds for one in each.requests]
    steps = sum(one.verify_steps for one in requests)
    tokens = sum(one.tokens or 0 for one in requests)
    return Trial(
        setting,
        median(map(_step_seconds, rounds)),
        tokens / steps,
        accepted_by_position(requests),
        rounds[0].concurrency,
        median(one.throughput for one in rounds),
        median(len(one.requests) / one.seconds for one in rounds),
        tuple(Pace(one.first_token, one.latency, one.tokens or 0) for one in requests),
    )


def _step_seconds(each: Round) -> float:
    seconds = sum(one.latency - one.first_token for one in each.requests)
    return seconds / sum(one.verify_steps for one in each.requests)


@record
class KeptStarts:
    """The starts of one question on disk."""

    path: Path
    starts: tuple[Start, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    """Settings that could not be measured, and why."""
    verified: Mapping[str, Any] | None = None
    """What the last comparison of the best ones showed."""
    compared: int = 0
    """Starts of comparisons, also of those that do not count."""

    @property
    def tried(self) -> int:
        """Starts that tried a setting, in vain or not."""
        return len(self.starts) + len(self.failed)

    @property
    def count(self) -> int:
        """All engine starts, those of the comparison included."""
        return self.tried + self.compared

    @property
    def seconds(self) -> float:
        """What the trials took."""
        return sum(one.seconds for one in self.starts)

    def write(self) -> None:
        """Write all of it, whole. Raises InputError where that cannot be done."""
        document = {
            "version": _VERSION,
            "starts": [asdict(one) for one in self.starts],
            "failed": dict(self.failed),
            "verified": self.verified,
            "compared": self.compared,
        }
        kept_work.write(self.path, document)


def kept(key: str, *, fresh: bool) -> KeptStarts:
    """What was measured of a question before; `fresh`: it is forgotten. Raises InputError."""
    folder = speclaunch_home() / "tunes" / key
    try:
        make_private(folder)
        if fresh:
            (folder / _FILE).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(Problem(f"cannot write to {folder}: {error.strerror}")) from error
    document = read_json(folder / _FILE)
    if document is None or document.get("version") != _VERSION:
        return KeptStarts(folder / _FILE)
    return KeptStarts(
        folder / _FILE,
        tuple(_start(one) for one in document["starts"]),
        dict(document["failed"]),
        document["verified"],
        document["compared"],
    )


def _start(said: Mapping[str, Any]) -> Start:
    trials = tuple(trial_from(one) for one in said["trials"])
    return Start(Setting(**said["setting"]), trials, float(said["seconds"]))


def trial_from(said: Mapping[str, Any]) -> Trial:
    """A trial as it was written."""
    return Trial(
        **{
            **said,
            "setting": Setting(**said["setting"]),
            "accepted": tuple(said["accepted"]),
            "paces": tuple(Pace(**one) for one in said["paces"]),
        }
    )
