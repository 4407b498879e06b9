"""Checks whether a measurement counts: the measured work must match the requested work.

A generator reports success even if nothing was generated: 0.5.23 benchmark/serving.py:707 assumes
the requested number of tokens until a text arrives. An engine may also serve without its draft.
Each check reports its observation; one objection rejects the entire comparison.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean

from msgspec import Struct

from speclaunch.measure.bench.measurement import Round

_CACHED = 0.9
"""Cached share at which a prompt counts as repeated; prompts may share a prefix."""
_SOONER = 0.5
"""Share of the engine's own latency below which an answer came from an intermediate cache."""
_DRIFT = 1.5
"""Speed ratio between the two halves above which a side is unsteady."""
_SHOWN = 200


class ExpectedSide(Struct, frozen=True):
    """Expected behavior of a side.

    `speculates`: True if a draft proposes tokens. `drafts`: maximum draft tokens per verify step;
    None if unknown.
    """

    name: str
    speculates: bool
    drafts: int | None = None
    simulated: str | None = None
    """Variable that simulates acceptance, if it is set and the side speculates."""


class Objection(Struct, frozen=True):
    """Reason why a measurement does not count."""

    kind: str
    """Short name: `errors`, `no-tokens`, …"""
    message: str


def objections(
    rounds: Sequence[Round], sides: Sequence[ExpectedSide], requests: int
) -> tuple[Objection, ...]:
    """Return all objections; `requests`: expected number per round."""
    found: list[Objection] = []
    for side in sides:
        own = [r for r in rounds if r.side == side.name]
        for each in own:
            found += _of_round(each, side, requests)
        found += _repeated(own, side.name)
        found += _drift(own, side.name)
    found += _prompts(rounds, sides)
    unique: dict[tuple[str, str], Objection] = {}
    for objection in found:  # report the same objection of many rounds once
        unique.setdefault((objection.kind, objection.message.partition(":")[0]), objection)
    return tuple(unique.values())


def _of_round(each: Round, side: ExpectedSide, requests: int) -> Iterator[Objection]:
    where = f"{side.name}: round {each.number + 1} at concurrency {each.concurrency}"
    failed = [request for request in each.requests if not request.ok]
    if failed:
        error = " ".join(failed[0].error.split())[-_SHOWN:] or "without a message"
        yield Objection("errors", f"{where}: {len(failed)} requests failed: {error}")
        return
    if len(each.requests) != requests:
        yield Objection("requests", f"{where}: {len(each.requests)} of {requests} requests")
        return
    silent = [request for request in each.requests if not request.tokens or not request.characters]
    if silent:
        yield Objection("no-tokens", f"{where}: {len(silent)} requests generated nothing")
        return
    other = [request for request in each.requests if request.tokens != request.requested]
    if other:
        yield Objection(
            "tokens",
            f"{where}: {len(other)} requests generated {other[0].tokens} tokens instead of "
            f"{other[0].requested}",
        )
    if (
        any(request.latency <= 0 or request.first_token <= 0 for request in each.requests)
        or each.seconds <= 0
    ):
        yield Objection("times", f"{where}: a request took no time")
    yield from _cached(each, where)
    sooner = [
        request for request in each.requests if request.latency < _SOONER * request.engine_latency
    ]
    if sooner:
        yield Objection(
            "cache",
            f"{where}: {len(sooner)} answers arrived before the engine generated them: "
            f"{sooner[0].latency:.3f} s instead of {sooner[0].engine_latency:.3f} s",
        )
    yield from _speculation(each, side, where)


def _cached(each: Round, where: str) -> Iterator[Objection]:
    known = [
        request
        for request in each.requests
        if request.prompt and request.cached >= _CACHED * request.prompt
    ]
    if known:
        yield Objection(
            "cache",
            f"{where}: {len(known)} prompts were already in the radix cache: {known[0].cached} of "
            f"{known[0].prompt} tokens",
        )


def _repeated(rounds: Sequence[Round], name: str) -> Iterator[Objection]:
    """Yield an objection if answer ids repeat, which shows that a cache returned the answers."""
    names = [request.id for each in rounds for request in each.requests if request.id]
    again = len(names) - len(set(names))
    if again:
        yield Objection("cache", f"{name}: {again} answers are repeated from a cache")


def _speculation(each: Round, side: ExpectedSide, where: str) -> Iterator[Objection]:
    steps = [request for request in each.requests if request.verify_steps]
    if not side.speculates:
        if steps:
            yield Objection("speculates", f"{where}: speculates unexpectedly")
        return
    if len(steps) < len(each.requests):
        rest = len(each.requests) - len(steps)
        yield Objection("no-drafts", f"{where}: no draft tokens for {rest} requests")
        return
    most = side.drafts
    lengths = [request.accept_length for request in steps if request.accept_length is not None]
    # the first token needs no verify step, so a short answer may show one token more
    if most is not None and lengths and fmean(lengths) > most + 1:
        yield Objection(
            "acceptance",
            f"{where}: acceptance length {fmean(lengths):.2f} exceeds {most} draft tokens",
        )


def _drift(rounds: Sequence[Round], name: str) -> Iterator[Objection]:
    """Yield objections if all later rounds are much faster, or all much slower."""
    for key in dict.fromkeys((r.workload, r.concurrency) for r in rounds):
        speeds = [r.throughput for r in rounds if (r.workload, r.concurrency) == key]
        half = len(speeds) // 2
        if half < 2 or min(speeds) <= 0:
            continue
        early, late = speeds[:half], speeds[-half:]
        factor = math.exp(abs(fmean(map(math.log, late)) - fmean(map(math.log, early))))
        is_separated = max(early) < min(late) or max(late) < min(early)
        if is_separated and factor > _DRIFT:
            how = "faster" if fmean(late) > fmean(early) else "slower"
            yield Objection(
                "drift",
                f"{name}: {factor:.2f} times {how} in the last rounds than in the first at "
                f"concurrency {key[1]}",
            )


def _prompts(rounds: Sequence[Round], sides: Sequence[ExpectedSide]) -> Iterator[Objection]:
    """Yield objections to rounds in which the sides received different prompts."""
    lengths: dict[tuple[str, int, int], dict[str, list[int]]] = {}
    for round_ in rounds:
        key = round_.workload, round_.concurrency, round_.number
        lengths.setdefault(key, {})[round_.side] = sorted(each.prompt for each in round_.requests)
    for (_, concurrency, number), by_side in lengths.items():
        texts = list(by_side.values())
        if len(by_side) == len(sides) > 1 and any(text != texts[0] for text in texts):
            yield Objection(
                "prompts",
                f"round {number + 1} at concurrency {concurrency}: the sides received "
                "different prompts",
            )
