"""Measurements: requests, rounds, objections, goodput, and speed-ups of pairs.

Goodput: requests per second that meet latency bounds. The definition is SGLang's (0.5.23
benchmark/goodput.py `calculate_goodput`) and vLLM's. A request counts if it succeeded and meets
every bound; the TPOT of a single token is 0. Bounds are in milliseconds.

A measurement counts only if the measured work matches the requested work. A generator reports
success even if nothing was generated: 0.5.23 benchmark/serving.py:707 assumes the requested number
of tokens until text arrives. An engine may also serve without its draft. Each check
reports its observation; one objection rejects the entire comparison.

A speed-up is the mean ratio of paired rounds, with a confidence interval. Consecutive rounds of the
two sides see the same machine state, so their ratio is used. Ratios are averaged as logarithms: 2
and 1/2 average to 1. The interval is Student's for the mean of the pairs. With the usual five to
ten pairs, a percentile bootstrap over rounds is too narrow: it covers about 85% instead of 95%.
Student's interval is accurate if the logarithms are roughly normal.
`tests/measure/bench/test_statistics.py` verifies both coverages.

Two starts of one deployment also differ, which rounds of one start do not show. With several starts
per side, the pairs of starts are the independent samples: each counts once, with the mean of its
rounds.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import zip_longest
from statistics import fmean, stdev
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from speclaunch.core import COMMAND_LINE, InputError, Place, size, sizes


class MeasuredRequest(Struct, frozen=True):
    """One request of the generator. Times are in seconds.

    `tokens`: generated tokens that the engine reports; None if it reports none. `prompt` and
    `cached`: all prompt tokens, and those from the radix cache. `positions`: verify steps by number
    of accepted drafts (index 0: none accepted).
    """

    ok: bool
    error: str
    latency: float
    first_token: float
    requested: int = field(name="asked")
    tokens: int | None
    prompt: int
    cached: int
    characters: int
    verify_steps: int
    positions: tuple[int, ...] = ()
    id: str = ""
    """The engine's unique ID for the answer."""
    engine_latency: float = 0.0
    """End-to-end seconds that the engine measured; 0 if not reported."""

    @property
    def accept_length(self) -> float | None:
        return self.tokens / self.verify_steps if self.verify_steps and self.tokens else None

    @property
    def per_token(self) -> float | None:
        """Seconds per token after the first (TPOT); None for fewer than two tokens."""
        if self.tokens is None or self.tokens < 2:
            return None
        return (self.latency - self.first_token) / (self.tokens - 1)


class At(Struct, frozen=True):
    """Identity of a certificate's cell: a workload, a prompt length and a concurrency."""

    workload: str
    context: int
    concurrency: int


class Round(Struct, frozen=True):
    """Requests of one round: a workload at one concurrency against one side."""

    side: str
    workload: str
    concurrency: int
    number: int
    """Index from 0; rounds of both sides with the same number are a pair."""
    seconds: float
    requests: tuple[MeasuredRequest, ...]
    context: int = 0
    """Requested tokens per prompt; 0: prompts are unchanged."""

    @property
    def at(self) -> At:
        return At(self.workload, self.context, self.concurrency)

    @property
    def tokens(self) -> int:
        return sum(request.tokens or 0 for request in self.requests)

    @property
    def throughput(self) -> float:
        """Output tokens per second."""
        return self.tokens / self.seconds if self.seconds > 0 else 0.0

    @property
    def latency(self) -> float:
        """Mean end-to-end latency in seconds."""
        return fmean(request.latency for request in self.requests) if self.requests else 0.0


def steps_by_accepted(requests: Iterable[MeasuredRequest]) -> tuple[int, ...]:
    """Return the number of verify steps that accepted 0, 1, 2, … drafts."""
    positions = (request.positions for request in requests)
    return tuple(map(sum, zip_longest(*positions, fillvalue=0)))


def accepted_by_position(requests: Iterable[MeasuredRequest]) -> tuple[float, ...]:
    """Return the share of verify steps that accepted at least 1, 2, … drafts."""
    counts = steps_by_accepted(requests)
    total = sum(counts)
    if not total:
        return ()
    return tuple(sum(counts[index:]) / total for index in range(1, len(counts)))


def request_from(reported: Mapping[str, Any]) -> MeasuredRequest:
    """Return a request from a generator's report (format: `worker/generate.py`).

    Server counters that are not numbers count as absent.
    """
    meta = reported.get("meta") or {}
    return MeasuredRequest(
        ok=bool(reported["success"]),
        error=str(reported["error"]),
        latency=float(reported["latency"]),
        first_token=float(reported["ttft"]),
        requested=int(reported["asked"] or 0),
        tokens=size(meta.get("completion_tokens"), least=0),
        prompt=size(meta.get("prompt_tokens")) or 0,
        cached=size(meta.get("cached_tokens")) or 0,
        characters=int(reported["characters"]),
        verify_steps=size(meta.get("spec_verify_ct")) or 0,
        positions=sizes(next((meta[name] for name in _HISTOGRAM if meta.get(name)), None)),
        id=str(meta.get("id") or "")[:_LONGEST_ID],
        engine_latency=_seconds(meta.get("e2e_latency")),
    )


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < _MOST_SECONDS else 0.0


_LONGEST_ID = 200
_MOST_SECONDS = 1e9
_HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")
"""Keys of the acceptance histogram by release; 0.5.3 has neither.

Source: managers/tokenizer_manager.py: 0.5.23 :3150, 0.5.18 :2777, 0.5.9 :1838.
"""


def rounds_of(rounds: Iterable[Round], side: str, at: At) -> list[Round]:
    """Return the rounds of one side in one cell, in order of number."""
    found = [r for r in rounds if r.side == side and r.at == at]
    return sorted(found, key=lambda r: r.number)


def cells_of(rounds: Iterable[Round]) -> tuple[At, ...]:
    """Return all measured cells, in measurement order."""
    return tuple(dict.fromkeys(r.at for r in rounds))


METRICS = ("ttft", "tpot", "e2el")
"""Metric names of `sglang.bench_serving --goodput`."""
_ALSO = {"e2e": "e2el"}


class Bound(Struct, frozen=True):
    """Upper bound of one metric for a request, in milliseconds."""

    metric: str
    most: float

    def __str__(self) -> str:
        return f"{self.metric}={self.most:g}"

    def is_met(self, request: MeasuredRequest) -> bool:
        seconds = {
            "ttft": request.first_token,
            "tpot": request.per_token or 0.0,
            "e2el": request.latency,
        }
        return 1000 * seconds[self.metric] <= self.most


def bounds(text: str) -> tuple[Bound, ...]:
    """Parse bounds such as `ttft=500,tpot=50`. SGLang's separators (`:` and spaces) also work.

    Raises InputError.
    """
    found: dict[str, Bound] = {}
    for word in filter(None, re.split(r"[,\s]+", text.strip())):
        name, _, value = word.replace(":", "=", 1).partition("=")
        metric = _ALSO.get(name, name)
        if metric not in METRICS or not _is_bound(value):
            raise _refused(text, f"{word!r} is not a bound")
        if metric in found:
            raise _refused(text, f"{metric} is set twice")
        found[metric] = Bound(metric, float(value))
    if not found:
        raise _refused(text, "no bound is set")
    return tuple(found.values())


def good(each: Round, within: Sequence[Bound]) -> int:
    """Return the number of requests that meet every bound."""
    return sum(
        request.ok and all(bound.is_met(request) for bound in within) for request in each.requests
    )


def goodput(each: Round, within: Sequence[Bound]) -> float:
    """Return the number of requests per second that meet every bound."""
    return good(each, within) / each.seconds if each.seconds > 0 else 0.0


def _is_bound(text: str) -> bool:
    try:
        number = float(text)
    except ValueError:
        return False
    return math.isfinite(number) and number > 0


def _refused(text: str, reason: str) -> InputError:
    return InputError(
        f"--goodput: {reason}",
        Place(COMMAND_LINE, text=f"--goodput {text}"),
        "set bounds in milliseconds (ttft, tpot, e2el): --goodput ttft=500,tpot=50",
    )


_CACHED = 0.9
"""Share of cached tokens at which a prompt counts as repeated, not just as sharing a prefix."""
_SOONER = 0.5
"""Minimum latency as a share of the engine's; faster answers came from a cache in between."""
_DRIFT = 1.5
"""Speed ratio between a side's later and earlier rounds above which the side counts as unsteady."""
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
    """Variable that simulates acceptance; None if not set, or if the side does not speculate."""


class Objection(Struct, frozen=True):
    """Reason why a measurement does not count."""

    kind: str
    """Short name: `errors`, `no-tokens`, …"""
    message: str


def objections(
    rounds: Sequence[Round], sides: Sequence[ExpectedSide], requests: int
) -> tuple[Objection, ...]:
    """Return all objections to a measurement. `requests`: expected number per round."""
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
        yield Objection("requests", f"{where}: {len(each.requests)} of {requests} requests ran")
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


def _repeated(rounds: Sequence[Round], name: str) -> Iterator[Objection]:
    """Yield an objection if a side's answer IDs repeat, because then a cache returned them."""
    names = [request.id for each in rounds for request in each.requests if request.id]
    again = len(names) - len(set(names))
    if again:
        yield Objection("cache", f"{name}: {again} answers came from a cache")


def _speculation(each: Round, side: ExpectedSide, where: str) -> Iterator[Objection]:
    steps = [request for request in each.requests if request.verify_steps]
    if not side.speculates:
        if steps:
            message = (
                f"{where}: {len(steps)} requests used drafts, but this side must not speculate"
            )
            yield Objection("speculates", message)
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
    """Yield objections if the second half of a side's rounds is much faster or much slower."""
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


Positive = Annotated[float, Meta(gt=0, le=sys.float_info.max)]

ERROR_RATE = 0.05
"""Probability of a false claim if the sides are equal; divided among the intervals of a result."""
LEAST_PAIRS = 3
"""Minimum pairs of rounds or starts; fewer do not show the spread."""


class SpeedClaim(StrEnum):
    """Claims that the data can support."""

    PAYS = "pays"
    """The entire interval is above 1."""
    DOES_NOT_PAY = "does not pay"
    """The entire interval is below 1."""
    NOT_SHOWN = "not shown"
    """The interval contains 1."""


class Interval(Struct, frozen=True):
    """A ratio, the interval of its true value, and the number of pairs of rounds."""

    ratio: Positive
    low: Positive
    high: Positive
    pairs: int

    @property
    def claim(self) -> SpeedClaim:
        if self.low > 1:
            return SpeedClaim.PAYS
        return SpeedClaim.DOES_NOT_PAY if self.high < 1 else SpeedClaim.NOT_SHOWN


def interval(
    ours: Sequence[float], theirs: Sequence[float], confidence: float = 0.95, starts: int = 1
) -> Interval:
    """Return the mean ratio of `ours` to `theirs` with its confidence interval.

    `starts`: number of engine starts; rounds alternate among them. Raises ValueError for fewer than
    three pairs, unequal lengths, or values not above 0.
    """
    if len(ours) != len(theirs) or len(ours) < LEAST_PAIRS:
        raise ValueError(
            f"{len(ours)} and {len(theirs)} rounds: both sides need the same number,"
            f" at least {LEAST_PAIRS}"
        )
    if min(*ours, *theirs) <= 0:
        raise ValueError("a round measured nothing")
    logs = of_starts(
        [math.log(our / their) for our, their in zip(ours, theirs, strict=True)], starts
    )
    middle = fmean(logs)
    half = quantile(confidence, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    return Interval(math.exp(middle), math.exp(middle - half), math.exp(middle + half), len(ours))


def of_starts(values: Sequence[float], starts: int) -> list[float]:
    """Return the independent values: each start's mean, or all values of a single start.

    The rounds alternate among the starts.
    """
    if starts == 1:
        return list(values)
    return [fmean(values[start::starts]) for start in range(starts)]


def quantile(confidence: float, freedom: int) -> float:
    """Return Student's t for a two-sided interval with probability `confidence`.

    `freedom`: degrees of freedom.
    """
    low, high = 0.0, 1.0
    while _within(high, freedom) < confidence:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < confidence else (low, middle)
    return (low + high) / 2


def _within(bound: float, freedom: int) -> float:
    """Return P(|t| < bound): Abramowitz and Stegun 26.7.3 (odd) and 26.7.4 (even freedom)."""
    angle = math.atan(bound / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = cosine if odd else 1.0, 0.0
    for number in range(odd, freedom - 1, 2):
        total += term
        term *= cosine**2 * (number + 1) / (number + 2)
    return (angle + sine * total) * 2 / math.pi if odd else sine * total
