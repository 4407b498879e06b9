"""Difference between two certificates, with a confidence interval.

They were measured at different times, so their rounds do not form pairs. Each speed-up is already a
ratio to a baseline that ran on the same machine in the same minutes. The mean logarithm of one
certificate's ratios (of its rounds, or of its starts) is compared with the other's. The interval is
Welch's (Student's t with Satterthwaite's degrees of freedom, rounded down): it assumes neither
equal spread nor equal numbers of rounds. Throughputs are compared in the same way, but also reflect
any other change between the measurements.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Sequence
from statistics import fmean, variance
from typing import Literal

from speclaunch.measure.bench.measurement import At, of_starts, quantile
from speclaunch.measure.bench.schema import (
    ArgumentsDiff,
    CellDifferenceRecord,
    CellRecord,
    CertificateDocument,
    DifferenceDocument,
    DifferenceName,
    RatioRecord,
)

ERROR_RATE = 0.05
"""Probability of claiming a difference if there is none; divided among the cells."""


_MOST = 700.0
"""Largest logarithm whose exponential is a finite float."""


def ratio_between(
    before: Sequence[float], after: Sequence[float], confidence: float
) -> RatioRecord:
    """Return the ratio of `after` to `before`, both given as logarithms of independent samples.

    Raises ValueError if either has fewer than two samples.
    """
    if min(len(before), len(after)) < 2:
        raise ValueError(f"{len(before)} and {len(after)} rounds: needs at least 2 of each")
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
    ratio, low, high = (math.exp(min(max(exponent, -_MOST), _MOST)) for exponent in at)
    return RatioRecord(ratio=ratio, low=low, high=high)


def difference(
    before: CertificateDocument, after: CertificateDocument, names: tuple[str, str]
) -> DifferenceDocument:
    """Return the changes between two certificates; no cells if they share none.

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
    """Return the common verdict, or "not shown" if the cells' verdicts differ."""
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
    """Return the variables and arguments of a side, sorted, as list entries."""
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
    """Split a command line before each option: `--tp-size 2`."""
    found: list[str] = []
    for word in command:
        if found and not word.startswith("--"):
            found[-1] += f" {word}"
        else:
            found.append(word)
    return found


def _notes(before: CertificateDocument, after: CertificateDocument) -> Iterator[str]:
    """Yield caveats, and differences outside the commands."""
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
