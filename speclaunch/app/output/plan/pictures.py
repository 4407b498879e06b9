"""Pictures of a GPU's memory and of decode batch sizes: cells of a bar, parts of a page.

Positions are in percent of the width, heights in pixels.
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
"""Letters of the uses, so that a bar is readable without colors.

Capital letters are the target's, small letters the draft's.
"""
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
"""Colors that red-green color-blind readers can distinguish."""


def ink(color: str) -> str:
    """Return black or white, whichever is more readable on a color (`#rrggbb`).

    The contrast is at least 4.5 (WCAG 2.2, relative luminance).
    """
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    bright = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if (bright + 0.05) / 0.05 > 1.05 / (bright + 0.05) else "#ffffff"


class BarPart(Struct, frozen=True):
    """Segment of a bar: its number of cells, of which `beyond` are past the end of the memory."""

    use: MemoryUse
    cells: int
    beyond: int = 0


def used(rank: RankBudget) -> tuple[MemoryShare, ...]:
    """Return the shares above zero, in the order of the uses."""
    order = {use: place for place, use in enumerate(MemoryUse)}
    shares = [share for share in rank.shares if share.size.bytes > 0]
    return tuple(sorted(shares, key=lambda share: order[share.use]))


def cells(rank: RankBudget, width: int) -> tuple[BarPart, ...]:
    """Return a bar of `width` cells, apportioned by largest remainder, with at least one per share.

    If memory is short, the bar extends past the end of the memory; `beyond` counts these cells.
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
    """Return cells by largest remainder, at least one per size."""
    total = sum(sizes)
    exact = [size * width / total for size in sizes]
    counts = [max(1, int(cells)) for cells in exact]
    while sum(counts) < width:
        lacking = [cells - count for cells, count in zip(exact, counts, strict=True)]
        counts[lacking.index(max(lacking))] += 1
    while sum(counts) > width:
        counts[counts.index(max(counts))] -= 1
    return counts


_LETTER = 2.2
"""Minimum width in percent of a piece with room for its letter."""
_BARS = 360
"""Maximum number of bars in a chart; beyond it, each bar shows the worst of several batch sizes."""
_HIGHEST = 60


class BarPiece(Struct, frozen=True):
    """Piece of a bar for one use. `beyond`: past the end of the memory."""

    share: MemoryShare
    at: float
    width: float
    beyond: bool

    @property
    def lettered(self) -> bool:
        """True if its letter fits into the piece."""
        return self.width >= _LETTER


class MemoryBar(Struct, frozen=True):
    """Memory of a GPU from left to right; excess extends past its `end`."""

    pieces: tuple[BarPiece, ...]
    end: float


def memory_picture(rank: RankBudget) -> MemoryBar | None:
    """Return the bar of a rank; None if no memory use is known."""
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
    """Yield spans of batch sizes with one decode mode, each with its position and width."""
    for span in found.spans():
        at = (span.first - 1) * 100 / found.most
        yield span, at, (span.last - span.first + 1) * 100 / found.most


def padding(found: Coverage) -> Iterator[tuple[float, float, float]]:
    """Yield position, width and height of a bar per batch size.

    The highest bar is the worst padding.
    """
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
    """Yield the batch sizes below a chart: number, position, and text anchor."""
    ends = {1: ("start", 0.0), most: ("end", 100.0)} if most > 8 else {}
    for tick in sorted({1, *(max(1, round(most * part / 4)) for part in range(1, 5))}):
        anchor, place = ends.get(tick, ("middle", (tick - 0.5) * 100 / most))
        yield tick, place, anchor
