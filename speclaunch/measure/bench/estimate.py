"""Estimated duration of a comparison, before it starts and while it runs.

None if there is nothing to estimate from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from statistics import fmean, median
from typing import Any

from msgspec import Struct

from speclaunch.engine import Plan, expected_start
from speclaunch.measure.bench.comparison import WARM_UP, Schedule, Step, steps
from speclaunch.measure.bench.measurement import At, Round
from speclaunch.measure.bench.workload import Prompts


def starts_due(schedule: Schedule, measured: Sequence[Step], due: Sequence[Step]) -> int:
    """Return the number of engine starts left for the `due` rounds.

    Engines of rounds `measured` in this session still run.
    """
    up = [_engine(step) for step in measured]
    if not schedule.blocks:
        return len({_engine(step) for step in due if step.side.url is None} - set(up))
    turns = [engine for engine, _ in groupby(map(_engine, due))]
    return len(turns) - (1 if turns and up[-1:] == turns[:1] else 0)


def _engine(step: Step) -> tuple[int, str]:
    """Return the engine start and the side that measure a step."""
    return step.start, step.side.name


def seconds_left(
    schedule: Schedule,
    done: Sequence[Round],
    due: Sequence[Step],
    starts: int,
    *,
    between: Sequence[float] = (),
    starting: Sequence[float] = (),
) -> float | None:
    """Return the seconds for all due rounds; None before the first round finishes.

    Each round is estimated from finished rounds of the same kind, or else from the token rate of
    other kinds. `between`: seconds between rounds so far; `starting`: seconds of each start so far.
    """
    if not due:
        return 0.0
    if not done or (starts and not starting):
        return None
    by_kind: dict[tuple[str, At], list[float]] = {}
    for round_ in done:
        by_kind.setdefault((round_.side, round_.at), []).append(round_.seconds)
    rates = [_work(r) / r.seconds for r in done if r.seconds > 0 and _work(r)]
    total = 0.0
    for step in due:
        names = step.side.name, _other(step, done)
        same_kind = next((by_kind[n, step.at] for n in names if (n, step.at) in by_kind), None)
        if same_kind:
            total += fmean(same_kind)
        elif rates:
            requests = schedule.requests_at(step.concurrency)
            total += step.prompts.output_tokens * requests / fmean(rates)
        else:
            return None
    each = fmean(between) if between else 0.0
    return total + each * len(due) + (fmean(starting) * starts if starts else 0.0)


def _other(step: Step, done: Sequence[Round]) -> str:
    """Return the name of the other side."""
    return next((r.side for r in done if r.side != step.side.name), "")


def _work(round_: Round) -> int:
    return sum(each.requested for each in round_.requests)


class TimeEstimate(Struct, frozen=True):
    """Expected duration of a comparison in seconds. Unknown parts are None."""

    starts: float | None
    rounds: float | None
    tokens: int
    """Tokens of all answers, including warm-up."""
    source: str = ""
    """Names of the comparisons that provide the rates."""

    @property
    def seconds(self) -> float | None:
        """Total seconds."""
        if self.starts is None or self.rounds is None:
            return None
        return self.starts + self.rounds


def estimate(
    schedule: Schedule,
    plans: Mapping[str, Plan],
    commands: Mapping[str, Sequence[str]],
    earlier: Sequence[Mapping[str, Any]],
) -> TimeEstimate:
    """Return the estimate of a comparison that has not started.

    Start times come from the plans, round times from `earlier` comparisons (documents, oldest
    first) with the same commands and concurrency.
    """
    work: dict[tuple[str, At], int] = {}
    for name, prompts, concurrency in _rounds(schedule):
        key = name, At(prompts.name, prompts.context, concurrency)
        tokens = prompts.output_tokens * schedule.requests_at(concurrency)
        work[key] = work.get(key, 0) + tokens
    rates = _rates(commands, earlier)
    found = {key: rates[key] for key in work if key in rates}
    rounds = None
    if len(found) == len(work):
        rounds = sum(tokens / found[key][0] for key, tokens in work.items())
    sources = dict.fromkeys(source for _, source in found.values())
    return TimeEstimate(
        _starts(schedule, plans), rounds, sum(work.values()), ", ".join(sources) if rounds else ""
    )


def _rounds(schedule: Schedule) -> Iterator[tuple[str, Prompts, int]]:
    """Yield every round, including warm-up."""
    for step in steps(schedule):
        yield step.side.name, step.prompts, step.concurrency
    for name in _started(schedule):
        for prompts, concurrency in schedule.cells():
            for _ in range(WARM_UP):
                yield name, prompts, concurrency


def _started(schedule: Schedule) -> list[str]:
    if not schedule.blocks:
        return [side.name for side in schedule.sides] * schedule.starts
    return [name for (_, name), _ in groupby(map(_engine, steps(schedule)))]


def _starts(schedule: Schedule, plans: Mapping[str, Plan]) -> float | None:
    total = 0.0
    for name in _started(schedule):
        if name not in plans:  # already running
            continue
        expected = expected_start(plans[name])
        if not expected.known:
            return None
        total += expected.likely
    return total


def _rates(
    commands: Mapping[str, Sequence[str]], earlier: Sequence[Mapping[str, Any]]
) -> dict[tuple[str, At], tuple[float, str]]:
    """Return output tokens per second and their source, by side, workload and concurrency."""
    found: dict[tuple[str, At], tuple[float, str]] = {}
    for document in earlier:
        about = document.get("about") or {}
        ran = dict(zip(about.get("sides") or (), about.get("commands") or (), strict=False))
        for name, command in commands.items():
            names = [theirs for theirs, its in ran.items() if list(its) == list(command)]
            speeds: dict[tuple[str, At], list[float]] = {}
            for entry in document.get("rounds") or ():
                if entry["side"] in names and entry["seconds"] > 0:
                    tokens = sum(each["tokens"] or 0 for each in entry["requests"])
                    at = At(entry["workload"], entry.get("context", 0), entry["concurrency"])
                    speeds.setdefault((name, at), []).append(tokens / entry["seconds"])
            source = str(document.get("name") or "")
            found |= {k: (median(v), source) for k, v in speeds.items() if median(v) > 0}
    return found
