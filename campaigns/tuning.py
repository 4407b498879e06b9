"""Hold `speclaunch tune` against an exhaustive grid on the CPU engine.

`grid` measures every setting of a recipe once, and some of them again in starts of their own (the
repeat noise). Settings are measured in pairs of engines that start together; while one is measured,
the other is halted. `tune` runs the command, with at most a fifth of the grid's starts. `regret`
measures what tune chose and what was best of the grid afresh, in rounds that take turns, in starts
of their own. `forced` compares the time of a verify step under forced acceptance
(`SGLANG_SIMULATE_ACC_LEN`) with that of real rounds.

What is measured is kept at once: a command that is interrupted, or ends after `--minutes`, goes on
where it was. Nothing else may run on the machine meanwhile.

    python -m campaigns tuning grid --recipe cpu_standalone --minutes 6
    python -m campaigns tuning tune --recipe cpu_standalone
    python -m campaigns tuning regret --recipe cpu_standalone
    python -m campaigns tuning show
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from msgspec.structs import asdict

from speclaunch.app.verbs.shared import lookup
from speclaunch.core.errors import LaunchError
from speclaunch.core.files import write_json
from speclaunch.measure.bench.comparison import Schedule, measure
from speclaunch.measure.bench.engines import EngineOrder, MeasuredEngine, end_on_signals, next_log
from speclaunch.measure.bench.load_generators import SglangGenerator
from speclaunch.measure.bench.measurement import Round, interval
from speclaunch.measure.bench.sides import LaunchedSide, SideOptions, candidate
from speclaunch.measure.bench.workload import workload
from speclaunch.measure.tune.model import (
    NGRAM,
    DraftSetting,
    Trial,
    algorithm_of,
    order_of,
    own_setting,
    possible,
)
from speclaunch.measure.tune.trials import Protocol, measure_started

ROOT = Path(__file__).resolve().parent.parent

STORE = ROOT / "tests" / "measure" / "tune" / "campaign"
PROMPTS, OUTPUT_TOKENS, REQUESTS, ROUNDS = "code", 64, 5, 4
MOST = 12
"""Draft tokens at most."""
MOST_OF_NGRAM = 32
"""It has no other setting."""
LEAST_STARTS = 6
"""Of tune, where a fifth of the settings are fewer."""
REPEATS = 12
SEED = 17
START_SECONDS = 300.0
PAIR_SECONDS = 60.0
SLICE_SECONDS = 400.0
PREFERRED = -15
READY = 4
"""Engines that wait, halted, until the lock is free."""
REGRET_STARTS, REGRET_ROUNDS = 3, 9
FACTOR = 5
"""There are so many times the settings that tune has starts."""


@dataclass(frozen=True)
class Campaign:
    """A recipe's settings, and the file of what was measured of it."""

    recipe: str
    side: LaunchedSide
    algorithm: str
    space: tuple[DraftSetting, ...]
    own: DraftSetting | None
    store: Path

    @property
    def document(self) -> dict[str, Any]:
        """What was measured."""
        if not self.store.exists():
            return {"version": 1, "recipe": self.recipe, "trials": []}
        found: dict[str, Any] = json.loads(self.store.read_text())
        return found

    def keep(self, document: Mapping[str, Any]) -> None:
        """Write it, whole."""
        self.store.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.store, document)
        self.store.chmod(0o644)


def campaign(recipe: str, store: Path) -> Campaign:
    asked = SideOptions((), None, lookup((), None))
    side = candidate([f"recipe={recipe}"], asked)
    algorithm = algorithm_of(side)
    space = possible(side, algorithm, most_of(algorithm))
    return Campaign(
        recipe, side, algorithm, space, own_setting(side, algorithm), store / f"{recipe}.json"
    )


def most_of(algorithm: str) -> int:
    return MOST_OF_NGRAM if algorithm == NGRAM else MOST


def starts_of(settings: int) -> int:
    """The most of tune."""
    return max(settings // FACTOR, LEAST_STARTS)


def protocol() -> Protocol:
    return Protocol(workload(PROMPTS, OUTPUT_TOKENS, 512), (1,), REQUESTS, ROUNDS)


def due(asked: Campaign, samples: int | None) -> list[tuple[DraftSetting, int]]:
    """Each setting once, then the repeats: the fastest, and others by chance; in an order by
    chance, so that a machine that changes meanwhile favours none."""
    chance = random.Random(SEED)  # noqa: S311  not for secrets
    order = list(asked.space)
    chance.shuffle(order)
    trials = asked.document["trials"]
    wanted = order[:samples] if samples else order
    done = {(_setting(one), one["repeat"]) for one in trials}
    first = [(one, 0) for one in wanted if (one, 0) not in done]
    if first:
        return first
    fastest = [
        _setting(one) for one in sorted(trials, key=_speed, reverse=True) if not one["repeat"]
    ]
    some = list(dict.fromkeys([*fastest[: REPEATS // 2], *wanted]))[:REPEATS]
    return [(one, 1) for one in some if (one, 1) not in done]


def _short(found: Trial) -> dict[str, Any]:
    return {
        "setting": asdict(found.setting),
        "step_seconds": round(found.step_seconds, 6),
        "accept_length": round(found.accept_length, 4),
        "accepted": [round(one, 4) for one in found.accepted],
    }


def _setting(trial: Mapping[str, Any]) -> DraftSetting:
    return DraftSetting(**trial["setting"])


def _speed(trial: Mapping[str, Any]) -> float:
    return float(trial["accept_length"]) / float(trial["step_seconds"])


def grid(asked: Campaign, samples: int | None, minutes: float, lock: Path | None) -> None:
    """Engines are started in pairs and halted; what is timed, is timed while the lock is held."""
    end = time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory(prefix="tune-campaign-") as text, ExitStack() as stack:
        folder = Path(text)
        side = asked.side
        generator = SglangGenerator(side.prepared.python, side.environment, folder, side.tokenizer)
        stack.callback(generator.close)
        while (left := due(asked, samples)) and time.monotonic() + PAIR_SECONDS < end:
            with ExitStack() as first:
                halted = _halted(asked, left[:READY], folder, first)
                with held(lock):
                    begun = time.monotonic()
                    _timed(asked, halted, generator)
                    first.close()
                    while left := due(asked, samples):
                        if time.monotonic() + PAIR_SECONDS > min(end, begun + SLICE_SECONDS):
                            break
                        with ExitStack() as pair:
                            _timed(
                                asked, _halted(asked, left[:2], folder, pair, PREFERRED), generator
                            )
            time.sleep(2)  # whoever waits for the lock gets it
        print(f"{len(left)} left", flush=True)


@contextmanager
def held(lock: Path | None) -> Iterator[None]:
    """Alone, as far as those go who ask for the same lock."""
    with (lock or Path("/dev/null")).open("a") as file:
        if lock is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            _prefer(0)


def _prefer(nice: int) -> None:
    """Our processes before all others, where that is allowed: an engine on a busy machine has
    times that say nothing. Linux weighs sessions (autogroups) first, then threads."""
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        with suppress(OSError):
            Path(f"/proc/{process.pid}/autogroup").write_text(str(nice))
        with suppress(OSError):
            for thread in Path(f"/proc/{process.pid}/task").iterdir():
                os.setpriority(os.PRIO_PROCESS, int(thread.name), nice)


@contextmanager
def _preferred(nice: int) -> Iterator[None]:
    """Meanwhile, those too that are begun."""
    ended = threading.Event()

    def prefer() -> None:
        while not ended.wait(0.5):
            _prefer(nice)

    thread = threading.Thread(target=prefer, daemon=True)
    if nice:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if nice:
            thread.join()


Halted = list[tuple[DraftSetting, int, EngineOrder, MeasuredEngine]]


def _halted(
    asked: Campaign,
    wanted: Sequence[tuple[DraftSetting, int]],
    folder: Path,
    stack: ExitStack,
    nice: int = 0,
) -> Halted:
    """Engines that serve, and wait; started two at a time. One that does not start is left out."""
    found: Halted = []
    for number in range(0, len(wanted), 2):
        began = time.monotonic()
        pair: Halted = []
        for setting, repeat in wanted[number : number + 2]:
            order = order_of(asked.side, setting)
            engine = MeasuredEngine(order, folder / f"{order.port}.log")
            stack.callback(engine.stop)
            pair.append((setting, repeat, order, engine))
        for one in pair:
            try:
                with _preferred(nice):
                    one[-1].wait(START_SECONDS)
            except LaunchError as error:
                print(f"{one[0]}: {error}: {error.problems[0].help}", flush=True)
                continue
            found.append(one)
        for *_, engine in pair:
            engine.pause()
        print(f"  {time.monotonic() - began:.0f} s to start", flush=True)
    return found


def _timed(asked: Campaign, halted: Halted, generator: SglangGenerator) -> None:
    began = time.monotonic()
    _prefer(PREFERRED)
    document = asked.document
    for setting, repeat, order, engine in halted:
        engine.resume()
        try:
            (found,) = measure_started(setting, order, engine, generator, protocol())
        except LaunchError as error:
            print(f"{setting}: {error}", flush=True)
            continue
        finally:
            engine.pause()
        document["trials"].append({**_short(found), "repeat": repeat})
        print(f"{setting}: {found.speed:.1f}", flush=True)
    asked.keep(document)
    print(f"  {time.monotonic() - began:.0f} s to measure {len(halted)}", flush=True)


def tune(asked: Campaign) -> None:
    """The command as a user runs it, with a fifth of the grid's starts. One that was interrupted
    goes on."""
    document = asked.document
    fresh = [] if document.get("begun") else ["--fresh"]
    asked.keep({**document, "begun": True})
    words = [
        *("tune", f"recipe={asked.recipe}", "--workload", PROMPTS),
        *("--starts", str(starts_of(len(asked.space)))),
        *("--draft-tokens", str(most_of(asked.algorithm))),
        *("--requests", str(REQUESTS), "--rounds", str(ROUNDS)),
        *("--output-tokens", str(OUTPUT_TOKENS), "--output-format", "json", *fresh),
    ]
    ran = subprocess.run(
        [sys.executable, "-m", "speclaunch", *words], stdout=subprocess.PIPE, text=True, check=True
    )
    done = {name: value for name, value in document.items() if name != "begun"}
    asked.keep({**done, "tune": json.loads(ran.stdout)})


def best(document: Mapping[str, Any]) -> dict[str, Any]:
    """The grid's best: the fastest of its mean over starts."""
    by_setting: dict[DraftSetting, list[float]] = {}
    for one in document["trials"]:
        by_setting.setdefault(_setting(one), []).append(math.log(_speed(one)))
    found = max(by_setting, key=lambda one: sum(by_setting[one]) / len(by_setting[one]))
    return asdict(found)


def _of_arguments(said: Mapping[str, int]) -> DraftSetting:
    tokens = said["speculative_num_draft_tokens"]
    steps = said.get("speculative_num_steps", 0)
    return DraftSetting(steps, said.get("speculative_eagle_topk", 1), tokens)


def regret(asked: Campaign) -> None:
    """What tune chose and the grid's best, afresh."""
    document = asked.document
    chosen, top = _of_arguments(document["tune"]["best"]), DraftSetting(**best(document))
    found: dict[str, Any] = {"chosen": asdict(chosen), "best": asdict(top)}
    if chosen == top:
        asked.keep({**document, "regret": {**found, "ratio": 1.0}})
        return
    orders = tuple(
        order_of(asked.side, one, name) for one, name in ((chosen, "chosen"), (top, "best"))
    )
    schedule = Schedule(
        orders,
        (workload(PROMPTS, OUTPUT_TOKENS, 512),),
        (1,),
        REGRET_ROUNDS,
        REQUESTS,
        starts=REGRET_STARTS,
        seed=71,
    )
    with tempfile.TemporaryDirectory(prefix="tune-campaign-") as text:
        folder, side = Path(text), asked.side
        generator = SglangGenerator(side.prepared.python, side.environment, folder, side.tokenizer)
        try:
            rounds = list(
                measure(schedule, lambda o: MeasuredEngine(o, next_log(folder)), generator, print)
            )
        finally:
            generator.close()
    rounds.sort(key=lambda one: one.number)
    speeds = {
        name: [_decode_speed(one) for one in rounds if one.side == name]
        for name in ("chosen", "best")
    }
    ratio = interval(speeds["chosen"], speeds["best"], starts=REGRET_STARTS)
    asked.keep({**document, "regret": {**found, "speeds": speeds, **asdict(ratio)}})


def _decode_speed(each: Round) -> float:
    seconds = sum(one.latency - one.first_token for one in each.requests)
    return sum(one.tokens or 0 for one in each.requests) / seconds


def noise(document: Mapping[str, Any]) -> list[float]:
    """How far two starts of the same setting lie apart, as shares; each pair."""
    speeds: dict[DraftSetting, list[float]] = {}
    for one in document["trials"]:
        speeds.setdefault(_setting(one), []).append(_speed(one))
    return sorted(abs(math.log(one[0] / one[1])) for one in speeds.values() if len(one) > 1)


def repeat_noise(document: Mapping[str, Any]) -> float:
    """The typical one: half of the pairs lie further apart."""
    apart = noise(document)
    return median(apart) if apart else 0.0


def regret_of(document: Mapping[str, Any]) -> float:
    """The share of speed that tune's choice lacks; 0 where it is the faster one."""
    return max(0.0, 1 - float(document["regret"]["ratio"]))


def show(store: Path) -> Iterator[str]:
    for path in sorted(store.glob("*.json")):
        document = json.loads(path.read_text())
        trials = document["trials"]
        told = f"{document['recipe']}: {len({_setting(one) for one in trials})} settings"
        apart = noise(document)
        if apart:
            told += (
                f", repeat noise {100 * repeat_noise(document):.1f}% (most {100 * apart[-1]:.1f}%)"
            )
        if "tune" in document:
            told += f"; tune: {document['tune']['starts']} starts"
        if "regret" in document:
            told += f", regret {100 * regret_of(document):.1f}%"
        yield told


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("grid", "tune", "regret", "show"))
    parser.add_argument("--recipe", default="cpu_standalone")
    parser.add_argument("--samples", type=int, help="of the settings, by chance; default: all")
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--store", type=Path, default=STORE)
    parser.add_argument("--lock", type=Path, help="a file that is locked while something is timed")
    words = parser.parse_args()
    if words.what == "show":
        print("\n".join(show(words.store)))
        return
    end_on_signals()
    asked = campaign(words.recipe, words.store)
    if words.what == "grid":
        grid(asked, words.samples, words.minutes, words.lock)
    elif words.what == "tune":
        tune(asked)
    else:
        regret(asked)
