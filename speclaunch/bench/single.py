"""What was measured of one server alone: numbers, and no claim, because nothing is compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from speclaunch.bench.certificate import caveats_of
from speclaunch.bench.cost import Cost
from speclaunch.bench.gate import Objection
from speclaunch.bench.goodput import Bound, goodput
from speclaunch.bench.measurement import At, Measured, Summary, summary
from speclaunch.record import record

SENTENCE = (
    "One server was measured and nothing compared: whether its speculation pays is not shown "
    "(--against)."
)


@record
class SingleCell:
    """One workload at one context length and concurrency. `goodput`: requests a second within
    the bounds, where there are some."""

    at: At
    numbers: Summary
    goodput: float | None = None


@record
class Single:
    """All cells; none where the measurement does not count."""

    side: str
    cells: tuple[SingleCell, ...]
    objections: tuple[Objection, ...] = ()
    caveats: tuple[str, ...] = ()
    memory: tuple[Cost, ...] = ()
    goodput_within: tuple[Bound, ...] = ()


def single(
    side: str,
    measured: Measured,
    objections: Sequence[Objection],
    *,
    simulated: Mapping[str, str],
    goodput_within: Sequence[Bound] = (),
    memory: Iterable[Cost] = (),
) -> Single:
    """The numbers of one side."""
    within = tuple(goodput_within)
    cells = []
    for at in measured.cells() if not objections else ():
        rounds = measured.of(side, at)
        rate = fmean(goodput(one, within) for one in rounds) if within else None
        cells.append(SingleCell(at, summary(rounds), rate))
    return Single(
        side,
        tuple(cells),
        tuple(objections),
        caveats_of([side], simulated),
        tuple(one for one in memory if one.side == side),
        within,
    )
