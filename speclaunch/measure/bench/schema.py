"""JSON of a certificate, and of two certificates compared: a stable contract for scripts.

`docs/reference/bench.schema.json` is generated from these models. Within version 1, keys may be
added, but never removed or redefined. Times are in seconds. Pages, texts and Markdown tables are
rendered from a certificate alone.

The difference between two certificates has a confidence interval. They were measured at different
times, so their rounds do not form pairs. Each speed-up is already a ratio to a baseline that ran on
the same machine in the same minutes. The mean logarithm of one certificate's ratios (of its rounds,
or of its starts) is compared with the other's. The interval is Welch's (Student's t with
Satterthwaite's degrees of freedom, rounded down): it assumes neither equal spread nor equal numbers
of rounds. Throughputs are compared in the same way, but also reflect any other change between the
measurements.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, variance
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, convert
from msgspec.structs import astuple

from speclaunch.measure.bench.measurement import (
    ERROR_RATE,
    LEAST_PAIRS,
    At,
    Interval,
    Objection,
    Positive,
    of_starts,
    quantile,
)

_MOST = 1e15
Speed = Annotated[float, Meta(gt=0, le=_MOST)]
Number = Annotated[float, Meta(ge=0, le=_MOST)]
Share = Annotated[float, Meta(ge=0, le=1)]
ClaimName = Literal["pays", "does not pay", "not shown"]
DifferenceName = Literal["faster", "slower", "not shown"]


class QuantilesRecord(Struct, frozen=True):
    """Times of all requests of a side at the shares in the certificate's `quantiles`; empty if no
    request has such a time."""

    latency: tuple[Number, ...]
    time_to_first_token: tuple[Number, ...]
    time_per_output_token: tuple[Number, ...]


class MeasuredRecord(Struct, frozen=True):
    """Results of a server in a cell: medians and counts."""

    requests: int
    output_tokens_per_second: Number
    latency: Number
    time_to_first_token: Number
    time_per_output_token: Number | None
    prompt_tokens: Number
    accept_length: Number | None
    accepted_by_position: tuple[Share, ...]
    goodput: Number | None = None
    """Requests per second within the requested bounds; null without bounds."""
    accept_length_per_request: Number | None = None
    """Mean of the requests' acceptance lengths; `accept_length` is the mean over verify steps."""
    verify_steps_by_accepted: tuple[int, ...] = ()
    """Number of verify steps that accepted 0, 1, 2, … draft tokens."""


class NumbersRecord(MeasuredRecord, frozen=True, kw_only=True):
    """Results of one side of a comparison, in one cell."""

    rounds: tuple[Speed, ...]
    """Output tokens per second of each round; values of both sides at the same index are a pair.

    Several starts alternate: the first round is of the first start, the second of the second.
    """
    quantiles: QuantilesRecord


class GoodputRecord(Struct, frozen=True):
    """Requests per second within the bounds, their shares of all requests, and the ratio (null if
    a round had no such request)."""

    candidate: Number
    baseline: Number
    candidate_share: Share
    baseline_share: Share
    ratio: Interval | None


class CellRecord(Struct, frozen=True, kw_only=True):
    """One workload at one concurrency and prompt length (0: unchanged prompts)."""

    workload: str
    context: int = 0
    concurrency: int
    claim: ClaimName
    speed_up: Interval
    latency_ratio: Interval
    candidate: NumbersRecord
    baseline: NumbersRecord
    goodput: GoodputRecord | None = None

    def __post_init__(self) -> None:
        pairs = len(self.candidate.rounds)
        if pairs != len(self.baseline.rounds) or pairs < LEAST_PAIRS:
            raise ValueError(f"rounds: both sides need the same number, at least {LEAST_PAIRS}")


class SideRecord(Struct, frozen=True):
    """Deployment that was compared: the engine's command with its secrets redacted."""

    name: str
    engine: str | None
    url: str | None = None
    """Address of a server that was already running; it has no command."""
    command: tuple[str, ...] = ()
    environment: dict[str, str | None] = {}
    """Variables that speclaunch sets for the engine; null: unset."""


class SpeculationRecord(Struct, frozen=True):
    """Speculation of the candidate; null: unknown, or not an argument of the algorithm."""

    algorithm: str
    target: str
    draft: str | None
    """Null: the target's own layers, or no draft model."""
    num_steps: int | None
    eagle_topk: int | None
    num_draft_tokens: int | None
    engine: str | None


class PublishedRecord(Struct, frozen=True, kw_only=True):
    """A cell's acceptance length and the published lengths that it is compared with."""

    workload: str
    context: int
    concurrency: int
    accept_length: Number
    lowest: Number
    """Published length on the benchmark with the lowest acceptance."""
    typical: Number
    highest: Number
    far_below: bool
    """True if fewer than half as many draft tokens are accepted as on the lowest benchmark."""
    differences: tuple[str, ...]
    """Differences between the published and the measured conditions."""
    sources: tuple[str, ...]


class SideMemory(Struct, frozen=True):
    """KV cache of a side in tokens, and the memory of the side in bytes."""

    side: str
    max_total_num_tokens: int | None
    bytes: int | None
    bytes_measured: str | None = None
    """`engine`: weights of the target, KV cache and graphs, as the engine reports them;
    `resident`: all processes of an engine on a CPU; null: not measured."""


class StopRecord(Struct, frozen=True):
    """The first concurrency or context length (`start`) at which a workload is no longer shown to
    pay, with the other held constant."""

    workload: str
    along: Literal["concurrency", "context"]
    context: int | None
    concurrency: int | None
    start: int
    claim: ClaimName


class CertificateDocument(Struct, frozen=True, kw_only=True):
    """Result of a comparison; no cells if it does not count."""

    version: Literal[1] = 1
    candidate: str
    baseline: str
    counts: bool
    objections: tuple[Objection, ...]
    claim: ClaimName | None
    sentence: str
    error_rate: Annotated[float, Meta(gt=0, lt=1)]
    measured: str | None
    """Time of the last round; null if unknown."""
    hardware: str | None
    sides: tuple[SideRecord, ...]
    """Both sides, the candidate first."""
    caveats: tuple[str, ...] = ()
    """Limits of the result: with simulated acceptance nothing is proven."""
    stops_paying: tuple[StopRecord, ...] = ()
    memory: tuple[SideMemory, ...] = ()
    speculation: SpeculationRecord | None = None
    published: tuple[PublishedRecord, ...] = ()
    """Acceptance of the candidate's cells, compared with published values."""
    goodput_within: dict[str, Number] = {}
    """Bounds in milliseconds by metric."""
    starts: Annotated[int, Meta(ge=1)] = 1
    """Engine starts per side.

    1: the intervals do not include variation between starts. More: they do, and each start counts
    once.
    """
    quantiles: tuple[Share, ...]
    cells: tuple[CellRecord, ...]

    @property
    def holds_starts(self) -> bool:
        """True if the intervals include variation between starts, or no server was launched."""
        return self.starts > 1 or all(side.url is not None for side in self.sides)

    def __post_init__(self) -> None:
        for cell in self.cells:
            if self.starts > 1 and not LEAST_PAIRS <= self.starts <= len(cell.candidate.rounds):
                raise ValueError(
                    f"starts: must be 1, or at least {LEAST_PAIRS} with a round in each"
                )
            for side in (cell.candidate, cell.baseline):
                for values in astuple(side.quantiles):
                    if len(values) not in (0, len(self.quantiles)):
                        raise ValueError("quantiles: the numbers of times and shares differ")


class SingleCellRecord(Struct, frozen=True, kw_only=True):
    """A cell of a single measured server, without a comparison."""

    workload: str
    context: int = 0
    concurrency: int
    candidate: MeasuredRecord


class SingleDocument(Struct, frozen=True, kw_only=True):
    """Measurements of one server: a certificate without the comparison."""

    version: Literal[1] = 1
    candidate: str
    baseline: None = None
    counts: bool
    objections: tuple[Objection, ...]
    claim: None = None
    sentence: str
    caveats: tuple[str, ...] = ()
    memory: tuple[SideMemory, ...] = ()
    speculation: SpeculationRecord | None = None
    published: tuple[PublishedRecord, ...] = ()
    goodput_within: dict[str, Number] = {}
    cells: tuple[SingleCellRecord, ...]


class RatioRecord(Struct, frozen=True):
    """Ratio of two separate measurements, and the interval of its true value."""

    ratio: Positive
    low: Positive
    high: Positive


class CellDifferenceRecord(Struct, frozen=True):
    """A cell in both certificates: ratios of the second to the first."""

    workload: str
    context: int
    concurrency: int
    verdict: DifferenceName
    speed_up: RatioRecord
    throughput: RatioRecord
    before: Interval
    after: Interval


class ArgumentsDiff(Struct, frozen=True):
    """Differences between two commands of a side: lines prefixed with `- ` or `+ `."""

    side: Literal["candidate", "baseline"]
    lines: tuple[str, ...]


class DifferenceDocument(Struct, frozen=True, kw_only=True):
    """Two certificates compared: whether the second is faster than the first."""

    version: Literal[1] = 1
    before: str
    after: str
    verdict: DifferenceName
    error_rate: float
    cells: tuple[CellDifferenceRecord, ...]
    only_before: tuple[At, ...]
    only_after: tuple[At, ...]
    arguments: tuple[ArgumentsDiff, ...]
    notes: tuple[str, ...]


def memory_of(document: Mapping[str, Any]) -> tuple[SideMemory, ...]:
    """Return the `memory` of a stored document. Raises ValidationError."""
    return convert(
        [_renamed(usage) for usage in document.get("memory", ())], tuple[SideMemory, ...]
    )


def measured_of(document: Mapping[str, Any]) -> CertificateDocument | SingleDocument:
    """Return a result of `bench` from its JSON document. Raises ValidationError."""
    memory = document.get("memory")
    if isinstance(memory, list):
        document = {**document, "memory": [_renamed(usage) for usage in memory]}
    if document.get("baseline", "") is None:
        return convert(document, SingleDocument)
    return convert(document, CertificateDocument)


_EARLIER = {"tokens": "max_total_num_tokens", "measured": "bytes_measured"}
"""Current names of keys, by their names in earlier speclaunch releases."""


def _renamed(memory: Any) -> Any:
    if not isinstance(memory, dict):
        return memory
    return {_EARLIER.get(name, name): value for name, value in memory.items()}


_MOST_EXPONENT = 700.0
"""Limit of logarithms, so that their exponentials are finite floats."""


def ratio_between(
    before: Sequence[float], after: Sequence[float], confidence: float
) -> RatioRecord:
    """Return the ratio of `after` to `before`, from logarithms of independent samples.

    Raises ValueError if either has fewer than two samples.
    """
    if min(len(before), len(after)) < 2:
        raise ValueError(f"{len(before)} and {len(after)} rounds; at least 2 of each are needed")
    middle = fmean(after) - fmean(before)
    parts = [variance(sample) / len(sample) for sample in (after, before)]
    total = sum(parts)
    if total <= 0:
        return _ratio(middle, 0.0)
    shares = zip(parts, (after, before), strict=True)
    freedom = 1 / sum((part / total) ** 2 / (len(sample) - 1) for part, sample in shares)
    return _ratio(middle, quantile(confidence, max(1, int(freedom + 1e-9))) * math.sqrt(total))


def _ratio(middle: float, half: float) -> RatioRecord:
    at = (middle, middle - half, middle + half)
    ratio, low, high = (
        math.exp(min(max(exponent, -_MOST_EXPONENT), _MOST_EXPONENT)) for exponent in at
    )
    return RatioRecord(ratio=ratio, low=low, high=high)


def difference(
    before: CertificateDocument, after: CertificateDocument, names: tuple[str, str]
) -> DifferenceDocument:
    """Return the changes between two certificates, without cells if they share none.

    `names`: the user's names for the two certificates.
    """
    theirs = {_at(cell): cell for cell in before.cells}
    ours = {_at(cell): cell for cell in after.cells}
    common = [at for at in theirs if at in ours]
    confidence = 1 - ERROR_RATE / max(len(common), 1)
    made_up = bool(before.caveats or after.caveats)
    starts = before.starts, after.starts
    cells = tuple(_cell(theirs[at], ours[at], starts, confidence, made_up=made_up) for at in common)
    return DifferenceDocument(
        before=names[0],
        after=names[1],
        verdict=_together(cells),
        error_rate=ERROR_RATE,
        cells=cells,
        only_before=tuple(at for at in theirs if at not in ours),
        only_after=tuple(at for at in ours if at not in theirs),
        arguments=tuple(_arguments(before, after)),
        notes=tuple(_notes(before, after)),
    )


def _at(cell: CellRecord) -> At:
    return At(cell.workload, cell.context, cell.concurrency)


def _cell(
    before: CellRecord,
    after: CellRecord,
    starts: tuple[int, int],
    confidence: float,
    *,
    made_up: bool,
) -> CellDifferenceRecord:
    earlier, later = starts
    speed_up = ratio_between(_ratios(before, earlier), _ratios(after, later), confidence)
    theirs, ours = (
        of_starts([math.log(x) for x in cell.candidate.rounds], several)
        for cell, several in ((before, earlier), (after, later))
    )
    return CellDifferenceRecord(
        workload=before.workload,
        context=before.context,
        concurrency=before.concurrency,
        verdict="not shown" if made_up else _verdict(speed_up),
        speed_up=speed_up,
        throughput=ratio_between(theirs, ours, confidence),
        before=before.speed_up,
        after=after.speed_up,
    )


def _ratios(cell: CellRecord, starts: int) -> list[float]:
    pairs = zip(cell.candidate.rounds, cell.baseline.rounds, strict=True)
    return of_starts([math.log(ours) - math.log(theirs) for ours, theirs in pairs], starts)


def _verdict(found: RatioRecord) -> DifferenceName:
    if found.low > 1:
        return "faster"
    return "slower" if found.high < 1 else "not shown"


def _together(cells: Sequence[CellDifferenceRecord]) -> DifferenceName:
    verdicts = {cell.verdict for cell in cells}
    return verdicts.pop() if len(verdicts) == 1 else "not shown"


def _arguments(before: CertificateDocument, after: CertificateDocument) -> Iterator[ArgumentsDiff]:
    sides: tuple[Literal["candidate", "baseline"], ...] = ("candidate", "baseline")
    for number, side in enumerate(sides):
        old, new = (_lines(found, number) for found in (before, after))
        diff = difflib.unified_diff(old, new, n=0, lineterm="")
        changed = [x for x in diff if not x.startswith(("--- ", "+++ ", "@@"))]
        if changed:
            yield ArgumentsDiff(side, tuple(f"{line[0]} {line[1:]}" for line in changed))


def _lines(found: CertificateDocument, number: int) -> list[str]:
    """Return a side's sorted variables and arguments, or its URL; empty without side `number`."""
    if number >= len(found.sides):
        return []
    side = found.sides[number]
    variables = [
        f"{name}={value}" if value is not None else f"unset {name}"
        for name, value in sorted(side.environment.items())
    ]
    if side.url is not None:
        return [side.url]
    return [*variables, *sorted(arguments(side.command))]


def arguments(command: Sequence[str]) -> list[str]:
    """Return a command as one string per option, such as `--tp-size 2`."""
    found: list[str] = []
    for word in command:
        if found and not word.startswith("--"):
            found[-1] += f" {word}"
        else:
            found.append(word)
    return found


def _notes(before: CertificateDocument, after: CertificateDocument) -> Iterator[str]:
    """Yield caveats of a comparison of certificates, and differences outside their commands."""
    yield from dict.fromkeys((*before.caveats, *after.caveats))
    if not (before.holds_starts and after.holds_starts):
        yield (
            "one start of each side: the intervals exclude variation between starts; "
            "bench --starts 3 includes it"
        )
    if before.hardware != after.hardware:
        old, new = (found.hardware or "unknown" for found in (before, after))
        yield f"the hardware differs: {old} and {new}; only the speed-ups are comparable"
    engines = [tuple(side.engine or "unknown" for side in d.sides) for d in (before, after)]
    if engines[0] != engines[1]:
        yield f"the engines differ: {', '.join(engines[0])} and {', '.join(engines[1])}"
    if [_lines(before, 1)] != [_lines(after, 1)]:
        yield "the baselines differ, so the speed-ups refer to different baselines"
