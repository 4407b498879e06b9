"""A GPU's memory and the batch sizes of decode as pictures: cells of a bar, parts of a page.

Places are in percent of the width, heights in pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from speclaunch.engine import MemoryShare, MemoryUse, RankBudget
from speclaunch.measure import BatchSpan, Coverage

LETTERS = {
    MemoryUse.OTHERS: "O",
    MemoryUse.RUNTIME: "R",
    MemoryUse.TARGET_WEIGHTS: "W",
    MemoryUse.DRAFT_WEIGHTS: "w",
    MemoryUse.TARGET_KV: "K",
    MemoryUse.DRAFT_KV: "k",
    MemoryUse.STATE: "S",
    MemoryUse.REQUEST_SLOTS: "s",
    MemoryUse.GRAPHS: "G",
    MemoryUse.ACTIVATIONS: "A",
    MemoryUse.FREE: ".",
}
"""What a cell of each use shows, so that a bar can be read without colours. Capital letters are
the target's where the draft has the small one."""
COLORS = {
    MemoryUse.OTHERS: "#8a8f98",
    MemoryUse.RUNTIME: "#b8a07a",
    MemoryUse.TARGET_WEIGHTS: "#4477aa",
    MemoryUse.DRAFT_WEIGHTS: "#88bbdd",
    MemoryUse.TARGET_KV: "#228844",
    MemoryUse.DRAFT_KV: "#88cc88",
    MemoryUse.STATE: "#aa7744",
    MemoryUse.REQUEST_SLOTS: "#ccbb44",
    MemoryUse.GRAPHS: "#aa4499",
    MemoryUse.ACTIVATIONS: "#ddaa77",
    MemoryUse.FREE: "",
}
"""Colours that can be told apart by those who do not tell red from green."""


def ink(color: str) -> str:
    """Black or white, whichever can be read better on a colour (`#rrggbb`): the contrast is 4.5
    at least (WCAG 2.2, relative luminance)."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    bright = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if (bright + 0.05) / 0.05 > 1.05 / (bright + 0.05) else "#ffffff"


class BarPart(Struct, frozen=True):
    """A share of a bar: so many of its cells, `beyond` of them past the end of the memory."""

    use: MemoryUse
    cells: int
    beyond: int = 0


def used(rank: RankBudget) -> tuple[MemoryShare, ...]:
    """The shares that take anything, in the order of the uses."""
    order = {use: place for place, use in enumerate(MemoryUse)}
    shares = [share for share in rank.shares if share.size.bytes > 0]
    return tuple(sorted(shares, key=lambda share: order[share.use]))


def cells(rank: RankBudget, width: int) -> tuple[BarPart, ...]:
    """A bar of `width` cells: each share its part, at least one, the rest where it is nearest.

    Where memory is short the bar goes past the end: `beyond` counts the cells after it.
    """
    shares = used(rank)
    if not shares or width < len(shares):
        return ()
    counts = _apportioned([share.size.bytes for share in shares], width)
    inside = width - (_beyond(rank, width) if rank.short_bytes > 0 else 0)
    parts: list[BarPart] = []
    at = 0
    for share, count in zip(shares, counts, strict=True):
        parts.append(BarPart(share.use, count, max(0, at + count - max(at, inside))))
        at += count
    return tuple(parts)


def _beyond(rank: RankBudget, width: int) -> int:
    total = rank.memory_bytes + rank.short_bytes
    return min(width - 1, max(1, round(width * rank.short_bytes / total)))


def _apportioned(sizes: Sequence[int], width: int) -> list[int]:
    """Cells by largest remainder; nothing that is there disappears."""
    total = sum(sizes)
    exact = [size * width / total for size in sizes]
    counts = [max(1, int(one)) for one in exact]
    while sum(counts) < width:
        lacking = [one - count for one, count in zip(exact, counts, strict=True)]
        counts[lacking.index(max(lacking))] += 1
    while sum(counts) > width:
        counts[counts.index(max(counts))] -= 1
    return counts


_LETTER = 2.2
"""A part narrower than so many percent has no room for its letter."""
_BARS = 360
"""Bars of a chart at most; with more batch sizes each stands for several, the worst of them."""
_HIGHEST = 60


class BarPiece(Struct, frozen=True):
    """What one use takes of a bar. `beyond`: past the end of the memory."""

    share: MemoryShare
    at: float
    width: float
    beyond: bool

    @property
    def lettered(self) -> bool:
        """Whether its letter has room."""
        return self.width >= _LETTER


class MemoryBar(Struct, frozen=True):
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
