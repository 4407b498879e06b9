"""Whether a measurement counts: what was measured must be what was asked for.

A generator reports success where nothing was generated (0.5.23 benchmark/serving.py:707 takes the
number of tokens that it asked for until a text arrives), and an engine serves without the draft it
was given. Each check names what it saw; one objection refuses the whole comparison.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean

from msgspec import Struct

from speclaunch.measure.bench.measurement import Round

_CACHED = 0.9
"""The share of a prompt in the cache from which on it was asked before; prompts may begin alike."""
_SOONER = 0.5
"""An answer that takes less than this share of the engine's own time was kept in between."""
_DRIFT = 1.5
"""A side that got so many times faster or slower from the first half to the last is not steady."""
_SHOWN = 200


class ExpectedSide(Struct, frozen=True):
    """What a side was to do. `speculates`: whether a draft proposes; `drafts`: at most so many
    tokens a verify step (None: not known)."""

    name: str
    speculates: bool
    drafts: int | None = None
    simulated: str | None = None
    """The variable that makes up its acceptance, where one is set and it speculates."""


class Objection(Struct, frozen=True):
    """Why a measurement does not count."""

    kind: str
    """A word for it: `errors`, `no-tokens`, …"""
    message: str


def objections(
    rounds: Sequence[Round], sides: Sequence[ExpectedSide], requests: int
) -> tuple[Objection, ...]:
    """All that is wrong; `requests`: how many a round was to have."""
    found: list[Objection] = []
    for side in sides:
        own = [one for one in rounds if one.side == side.name]
        for each in own:
            found += _of_round(each, side, requests)
        found += _repeated(own, side.name)
        found += _drift(own, side.name)
    found += _prompts(rounds, sides)
    told: dict[tuple[str, str], Objection] = {}
    for one in found:  # the same of many rounds is said once
        told.setdefault((one.kind, one.message.partition(":")[0]), one)
    return tuple(told.values())


def _of_round(each: Round, side: ExpectedSide, requests: int) -> Iterator[Objection]:
    where = f"{side.name}: round {each.number + 1} at concurrency {each.concurrency}"
    failed = [one for one in each.requests if not one.ok]
    if failed:
        said = " ".join(failed[0].error.split())[-_SHOWN:] or "without a message"
        yield Objection("errors", f"{where}: {len(failed)} requests failed: {said}")
        return
    if len(each.requests) != requests:
        yield Objection("requests", f"{where}: {len(each.requests)} of {requests} requests")
        return
    silent = [one for one in each.requests if not one.tokens or not one.characters]
    if silent:
        yield Objection("no-tokens", f"{where}: {len(silent)} requests generated nothing")
        return
    other = [one for one in each.requests if one.tokens != one.asked]
    if other:
        yield Objection(
            "tokens",
            f"{where}: {len(other)} requests generated another number of tokens than asked: "
            f"{other[0].tokens} instead of {other[0].asked}",
        )
    if any(one.latency <= 0 or one.first_token <= 0 for one in each.requests) or each.seconds <= 0:
        yield Objection("times", f"{where}: a request took no time")
    yield from _cached(each, where)
    sooner = [one for one in each.requests if one.latency < _SOONER * one.engine_latency]
    if sooner:
        yield Objection(
            "cache",
            f"{where}: {len(sooner)} answers came sooner than the engine generated them: "
            f"{sooner[0].latency:.3f} s instead of {sooner[0].engine_latency:.3f} s",
        )
    yield from _speculation(each, side, where)


def _cached(each: Round, where: str) -> Iterator[Objection]:
    known = [one for one in each.requests if one.prompt and one.cached >= _CACHED * one.prompt]
    if known:
        yield Objection(
            "cache",
            f"{where}: {len(known)} prompts were in the radix cache already: {known[0].cached} of "
            f"{known[0].prompt} tokens",
        )


def _repeated(rounds: Sequence[Round], name: str) -> Iterator[Objection]:
    """An answer that came before was not generated: something in between keeps them."""
    names = [one.id for each in rounds for one in each.requests if one.id]
    again = len(names) - len(set(names))
    if again:
        yield Objection("cache", f"{name}: {again} answers were given before, not generated again")


def _speculation(each: Round, side: ExpectedSide, where: str) -> Iterator[Objection]:
    steps = [one for one in each.requests if one.verify_steps]
    if not side.speculates:
        if steps:
            yield Objection("speculates", f"{where}: it speculates, and was not to")
        return
    if len(steps) < len(each.requests):
        rest = len(each.requests) - len(steps)
        yield Objection("no-drafts", f"{where}: nothing was proposed for {rest} requests")
        return
    most = side.drafts
    lengths = [one.accept_length for one in steps if one.accept_length is not None]
    # the prompt's own token comes without a step: a short answer may show one more
    if most is not None and lengths and fmean(lengths) > most + 1:
        yield Objection(
            "acceptance",
            f"{where}: an acceptance length of {fmean(lengths):.2f} with {most} draft tokens",
        )


def _drift(rounds: Sequence[Round], name: str) -> Iterator[Objection]:
    """A side whose later rounds are all much faster, or slower, than its earlier ones."""
    for key in dict.fromkeys((one.workload, one.concurrency) for one in rounds):
        speeds = [one.throughput for one in rounds if (one.workload, one.concurrency) == key]
        half = len(speeds) // 2
        if half < 2 or min(speeds) <= 0:
            continue
        early, late = speeds[:half], speeds[-half:]
        factor = math.exp(abs(fmean(map(math.log, late)) - fmean(map(math.log, early))))
        apart = max(early) < min(late) or max(late) < min(early)
        if apart and factor > _DRIFT:
            how = "faster" if fmean(late) > fmean(early) else "slower"
            yield Objection(
                "drift",
                f"{name}: it became {factor:.2f} times {how} from the first rounds to the last at "
                f"concurrency {key[1]}",
            )


def _prompts(rounds: Sequence[Round], sides: Sequence[ExpectedSide]) -> Iterator[Objection]:
    """Both sides must have been asked the same."""
    asked: dict[tuple[str, int, int], dict[str, list[int]]] = {}
    for one in rounds:
        key = one.workload, one.concurrency, one.number
        asked.setdefault(key, {})[one.side] = sorted(each.prompt for each in one.requests)
    for (_, concurrency, number), by_side in asked.items():
        texts = list(by_side.values())
        if len(by_side) == len(sides) > 1 and any(text != texts[0] for text in texts):
            yield Objection(
                "prompts",
                f"round {number + 1} at concurrency {concurrency}: the sides were asked "
                "different prompts",
            )
