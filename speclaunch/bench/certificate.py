"""What a comparison shows: how much faster, at which concurrency, and no more than that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean

from speclaunch.bench.cost import Cost
from speclaunch.bench.gate import Objection
from speclaunch.bench.goodput import Bound, good, goodput
from speclaunch.bench.measurement import At, Measured, Round, Summary, summary
from speclaunch.bench.statistics import LEAST_PAIRS, Claim, Interval, interval
from speclaunch.bench.telling import Stop, sentence, stops
from speclaunch.record import record

Ratio = Callable[[Sequence[float], Sequence[float]], Interval]
ERROR_RATE = 0.05
"""How often a certificate claims something where nothing differs; divided among its intervals."""


@record
class Goodput:
    """Requests a second within all bounds: the means of the rounds, and the paired ratio."""

    candidate: float
    baseline: float
    candidate_share: float
    baseline_share: float
    """Of all requests, those within the bounds."""
    ratio: Interval | None
    """None where a round had no request within them: then there is no ratio."""


@record
class Cell:
    """One workload at one context length and concurrency."""

    workload: str
    concurrency: int
    candidate: Summary
    baseline: Summary
    throughput: Interval
    """Output tokens a second, the candidate's to the baseline's."""
    latency: Interval
    """Mean end-to-end latency, the baseline's to the candidate's: more than 1 is faster."""
    context: int = 0
    """Tokens of each prompt; 0: the prompts are as they are."""
    goodput: Goodput | None = None
    withheld: tuple[Claim, ...] = ()
    """What is never claimed, because a side's acceptance is made up."""

    @property
    def claim(self) -> Claim:
        """By the throughput, which at one concurrency is the latency's other side."""
        found = self.throughput.claim
        return Claim.NOT_SHOWN if found in self.withheld else found

    @property
    def at(self) -> At:
        """What was measured."""
        return At(self.workload, self.context, self.concurrency)

    @property
    def prompt_tokens(self) -> float:
        """Tokens of a prompt as the engine counted them, the median."""
        return self.candidate.prompt


@record
class Certificate:
    """All cells; none where the measurement does not count (`objections`)."""

    candidate: str
    baseline: str
    cells: tuple[Cell, ...]
    objections: tuple[Objection, ...] = ()
    error_rate: float = ERROR_RATE
    caveats: tuple[str, ...] = ()
    """What holds for all of it, and takes from what it shows."""
    memory: tuple[Cost, ...] = ()
    """Of the candidate, then of the baseline, where they tell."""
    goodput_within: tuple[Bound, ...] = ()
    starts: int = 1
    """Of each side: with several the intervals hold what differs from start to start."""

    @property
    def claim(self) -> Claim:
        """Of all cells together: the same for all, else not shown."""
        claims = {cell.claim for cell in self.cells}
        return claims.pop() if len(claims) == 1 else Claim.NOT_SHOWN

    @property
    def least(self) -> float | None:
        """The smallest ratio that all intervals allow: what `--fail-under` is held against. None
        where none may be claimed."""
        if any(Claim.PAYS in cell.withheld for cell in self.cells):
            return None
        return min((cell.throughput.low for cell in self.cells), default=None)

    @property
    def sentence(self) -> str:
        """The verdict in words, and nothing more than the data say."""
        if self.objections:
            return "The measurement does not count."
        return sentence(self.cells)

    @property
    def stops(self) -> tuple[Stop, ...]:
        """Where it stops paying: by concurrency, and by context length."""
        return stops(self.cells)

    def by_workload(self) -> list[tuple[str, list[Cell]]]:
        """The cells of each workload, by context length and concurrency."""
        names = dict.fromkeys(cell.workload for cell in self.cells)
        return [
            (name, sorted((c for c in self.cells if c.workload == name), key=_size))
            for name in names
        ]


def _size(cell: Cell) -> tuple[int, int]:
    return cell.context, cell.concurrency


def certificate(
    candidate: str,
    baseline: str,
    measured: Measured,
    objections: Sequence[Objection],
    *,
    simulated: Mapping[str, str] | None = None,
    goodput_within: Sequence[Bound] = (),
    memory: Iterable[Cost] = (),
    starts: int = 1,
) -> Certificate:
    """The certificate of a measurement. `simulated`: by side, the variable that makes its
    acceptance up; a candidate with one is never claimed to pay, a baseline with one proves
    nothing. `starts`: of each side; they took turns in the rounds."""
    made_up = simulated or {}
    caveats = caveats_of([candidate, baseline], made_up)
    costs = {one.side: one for one in memory}
    told = tuple(costs[name] for name in (candidate, baseline) if name in costs)
    within = tuple(goodput_within)

    def found(cells: Sequence[Cell], wrong: Sequence[Objection]) -> Certificate:
        return Certificate(
            candidate,
            baseline,
            tuple(cells),
            tuple(wrong),
            caveats=caveats,
            memory=told,
            goodput_within=within,
            starts=starts,
        )

    if objections:
        return found((), objections)
    withheld = _withheld(candidate in made_up, baseline in made_up)
    keys = measured.cells()
    intervals = len(keys) * (2 if within else 1)
    confidence = 1 - ERROR_RATE / max(intervals, 1)
    ratio = partial(interval, confidence=confidence, starts=starts)
    cells = []
    for at in keys:
        ours, theirs = measured.of(candidate, at), measured.of(baseline, at)
        pairs = min(len(ours), len(theirs))
        least = max(LEAST_PAIRS, starts)
        if pairs < least:
            short = Objection("pairs", f"{pairs} pairs of rounds: at least {least}")
            return found((), (short,))
        ours, theirs = ours[:pairs], theirs[:pairs]
        cells.append(_cell(at, ours, theirs, ratio, within, withheld))
    return found(cells, ())


def caveats_of(sides: Iterable[str], simulated: Mapping[str, str]) -> tuple[str, ...]:
    """What is said of sides whose acceptance is made up."""
    return tuple(
        f"{side}: acceptance is made up by {simulated[side]}: the output is corrupt"
        for side in sides
        if side in simulated
    )


def _withheld(candidate: bool, baseline: bool) -> tuple[Claim, ...]:
    if baseline:
        return (Claim.PAYS, Claim.DOES_NOT_PAY)
    return (Claim.PAYS,) if candidate else ()


def _cell(
    at: At,
    ours: Sequence[Round],
    theirs: Sequence[Round],
    ratio: Ratio,
    within: Sequence[Bound],
    withheld: tuple[Claim, ...],
) -> Cell:
    return Cell(
        at.workload,
        at.concurrency,
        summary(ours),
        summary(theirs),
        ratio([one.throughput for one in ours], [one.throughput for one in theirs]),
        ratio([one.latency for one in theirs], [one.latency for one in ours]),
        at.context,
        _goodput(ours, theirs, ratio, within) if within else None,
        withheld,
    )


def _goodput(
    ours: Sequence[Round], theirs: Sequence[Round], ratio: Ratio, within: Sequence[Bound]
) -> Goodput:
    mine = [goodput(one, within) for one in ours]
    others = [goodput(one, within) for one in theirs]
    is_ratio = min(*mine, *others) > 0
    return Goodput(
        fmean(mine),
        fmean(others),
        _share(ours, within),
        _share(theirs, within),
        ratio(mine, others) if is_ratio else None,
    )


def _share(rounds: Sequence[Round], within: Sequence[Bound]) -> float:
    requests = sum(len(one.requests) for one in rounds)
    return sum(good(one, within) for one in rounds) / requests if requests else 0.0
