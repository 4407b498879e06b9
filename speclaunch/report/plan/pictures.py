"""Where the parts of a page's pictures stand: in percent of the width, heights in pixels."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.budget import MemoryShare, RankBudget
from speclaunch.planning.planned_deployment import BatchSpan, Coverage
from speclaunch.record import record
from speclaunch.report.plan.bar import used

_LETTER = 2.2
"""A part narrower than so many percent has no room for its letter."""
_BARS = 360
"""Bars of a chart at most; with more batch sizes each stands for several, the worst of them."""
_HIGHEST = 60


@record
class BarPiece:
    """What one use takes of a bar. `beyond`: past the end of the memory."""

    share: MemoryShare
    at: float
    width: float
    beyond: bool

    @property
    def lettered(self) -> bool:
        """Whether its letter has room."""
        return self.width >= _LETTER


@record
class MemoryBar:
    """A GPU's memory from left to right; what is too much goes past its `end`."""

    pieces: tuple[BarPiece, ...]
    end: float


def memory_picture(rank: RankBudget) -> MemoryBar | None:
    """The bar of a rank; None where nothing is known to take any memory."""
    total = rank.memory_bytes + max(0, rank.short_bytes)
    shares = used(rank)
    if not total or not shares:
        return None
    scale = 100 / max(total, sum(share.size.bytes for share in shares))
    pieces: list[BarPiece] = []
    at, end = 0.0, rank.memory_bytes * scale
    for share in shares:
        width = share.size.bytes * scale
        pieces.append(BarPiece(share, at, width, beyond=at + width > end + 0.01))
        at += width
    return MemoryBar(tuple(pieces), end)


def spans(found: Coverage) -> Iterator[tuple[BatchSpan, float, float]]:
    """The batch sizes that are decoded alike, each with its place and width."""
    for span in found.spans():
        at = (span.first - 1) * 100 / found.most
        yield span, at, (span.last - span.first + 1) * 100 / found.most


def padding(found: Coverage) -> Iterator[tuple[float, float, float]]:
    """Place, width and height of a bar for each batch size: the highest is the worst padding."""
    if found.worst is None:
        return
    highest = found.waste(found.worst)
    each = -(-found.most // _BARS)
    for first in range(1, found.most + 1, each):
        last = min(first + each - 1, found.most)
        waste = max(found.waste(batch) for batch in range(first, last + 1))
        if waste:
            at, width = (first - 1) * 100 / found.most, (last - first + 1) * 100 / found.most
            yield at, width, waste / highest * _HIGHEST


def ticks(most: int) -> Iterator[tuple[int, float, str]]:
    """The batch sizes below a chart: number, place, and which end of its text stands there."""
    ends = {1: ("start", 0.0), most: ("end", 100.0)} if most > 8 else {}
    for tick in sorted({1, *(max(1, round(most * part / 4)) for part in range(1, 5))}):
        anchor, place = ends.get(tick, ("middle", (tick - 0.5) * 100 / most))
        yield tick, place, anchor
