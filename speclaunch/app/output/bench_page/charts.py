"""Where the parts of a certificate's pictures stand: across in percent, down in pixels.

So that a picture is as wide as its place while its text keeps its size. Pure functions of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from speclaunch.app.output.bench_words import per_cell, ratio
from speclaunch.measure import CellRecord, NumbersRecord

HEIGHT = 190.0
"""Pixels of a plot, from its highest value to its lowest."""
_ROOM = 1.06
"""A scale goes so many times beyond what it shows."""
_RATIOS = (1, 1.1, 1.2, 1.3, 1.5, 1.7, 2, 2.5, 3, 4, 5, 7, 8, 9, 10)
"""What a scale of ratios may be labelled with, between a power of ten and the next."""
_STEPS = (1, 2, 2.5, 5, 10)
_TICKS = 6
"""Labels of a scale, at most."""
MOST_LABELS = 8
"""More points have no room for their numbers; the table has them."""
_TOTAL = 100.0
_WHOLE = 99.95
"""From here on three digits are a whole number."""
_LEAST = 0.9995
"""From here on a number is 1 in three digits."""
_SHORTEST = 1e-12
"""Seconds; no scale is made for less."""


class Tick(Struct, frozen=True):
    """A label of a scale: where it stands, and what it says."""

    at: float
    text: str


QUARTERS = tuple(Tick(HEIGHT * (1 - part / 4), f"{25 * part}%") for part in range(5))
"""A scale of shares."""


class RatioPoint(Struct, frozen=True):
    """A cell's speed-up: its place, and its interval from `low` to `high` (down the picture)."""

    at: float
    ratio: float
    low: float
    high: float
    claim: str
    text: str
    label: str
    """Below it: the concurrency."""


class RatioPlot(Struct, frozen=True):
    """Speed-ups over concurrency; `one` is where nothing differs."""

    points: tuple[RatioPoint, ...]
    ticks: tuple[Tick, ...]
    one: float


class Curve(Struct, frozen=True):
    """A line through points in a field of 100 by 100, as SVG writes it."""

    name: str
    points: str


class Dot(Struct, frozen=True):
    """A value of a line."""

    at: float
    down: float
    text: str


class ShareLine(Struct, frozen=True):
    """Shares of a workload, from position 1 on."""

    name: str
    dots: tuple[Dot, ...]

    @property
    def points(self) -> str:
        """As SVG writes them, in a field of 100 by 100."""
        return " ".join(f"{dot.at:.2f},{dot.down / HEIGHT * _TOTAL:.2f}" for dot in self.dots)


class SharePlot(Struct, frozen=True):
    """Acceptance by position, a line a workload."""

    lines: tuple[ShareLine, ...]
    positions: tuple[Tick, ...]
    ticks: tuple[Tick, ...]


class Bar(Struct, frozen=True):
    """Times of a side: a bar from 0 to the median, marks at 90 and 99 percent of requests."""

    side: str
    p50: float
    p90: float
    p99: float
    texts: tuple[str, str, str]


class BarRow(Struct, frozen=True):
    """The times of both sides of a cell."""

    name: str
    bars: tuple[Bar, ...]


class TimePlot(Struct, frozen=True):
    """Times of all cells on one scale."""

    title: str
    rows: tuple[BarRow, ...]
    ticks: tuple[Tick, ...]


class Distribution(Struct, frozen=True):
    """The share of requests that were done after a time: a curve a side."""

    title: str
    curves: tuple[Curve, ...]
    ticks: tuple[Tick, ...]


TIMES = (
    ("latency", "End-to-end latency"),
    ("time_to_first_token", "Time to first token"),
    ("time_per_output_token", "Time per output token after the first"),
)


def ratio_scale(cells: Sequence[CellRecord]) -> tuple[float, float]:
    """From the least to the most that all intervals say, with 1 in it."""
    low = min(1.0, *(cell.speed_up.low for cell in cells))
    high = max(1.0, *(cell.speed_up.high for cell in cells))
    low, high = max(low, 1e-3), min(high, 1e3)
    return min(low / _ROOM, 0.95), max(high * _ROOM, 1.05)


def ratio_plot(cells: Sequence[CellRecord], scale: tuple[float, float]) -> RatioPlot:
    """The speed-ups of a workload: each concurrency has a place of its own, ratios are even."""
    low, high = scale

    def down(ratio: float) -> float:
        inside = min(max(ratio, low), high)
        return HEIGHT * (math.log(high) - math.log(inside)) / (math.log(high) - math.log(low))

    points = tuple(
        RatioPoint(
            (number + 0.5) * _TOTAL / len(cells),
            down(cell.speed_up.ratio),
            down(cell.speed_up.low),
            down(cell.speed_up.high),
            cell.claim,
            ratio(cell.speed_up.ratio),
            str(cell.concurrency),
        )
        for number, cell in enumerate(cells)
    )
    ticks = tuple(Tick(down(one), f"{one:g}") for one in ratio_ticks(low, high))
    return RatioPlot(points, ticks, down(1.0))


def ratio_ticks(low: float, high: float) -> list[float]:
    """Round ratios within a scale, 1 among them, so few that they can be read."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = [10.0**power * one for power in range(first, last + 1) for one in _RATIOS]
    inside = sorted({float(f"{one:.3g}") for one in every if low <= one <= high} | {1.0})
    least = (math.log(high) - math.log(low)) / (_TICKS + 1)
    kept = [1.0]
    for one in sorted(inside, key=_niceness):
        if all(abs(math.log(one) - math.log(other)) >= least for other in kept):
            kept.append(one)
    return sorted(kept)


def _niceness(ratio: float) -> tuple[int, float]:
    """Ratios of few digits first, then those near 1."""
    return len(f"{ratio:g}".strip("0.").replace(".", "")), abs(math.log(ratio))


def share_plot(cells: Sequence[CellRecord]) -> SharePlot | None:
    """Acceptance by position: of each workload the cell of the lowest concurrency; None where
    nothing was proposed."""
    chosen: dict[tuple[str, int], CellRecord] = {}
    for cell in sorted(cells, key=lambda one: one.concurrency):
        if cell.candidate.accepted_by_position:
            chosen.setdefault((cell.workload, cell.context), cell)
    if not chosen:
        return None
    order = dict.fromkeys((one.workload, one.context) for one in cells)
    most = max(len(cell.candidate.accepted_by_position) for cell in chosen.values())

    def across(position: int) -> float:
        return (position + 0.5) * _TOTAL / most

    lines = [
        ShareLine(
            per_cell(cell, concurrency=False),
            tuple(
                Dot(across(number), HEIGHT * (1 - share), f"{_TOTAL * share:.0f}%")
                for number, share in enumerate(cell.candidate.accepted_by_position)
            ),
        )
        for cell in (chosen[key] for key in order if key in chosen)
    ]
    every = max(1, -(-most // 16))
    positions = [Tick(across(at), str(at + 1)) for at in range(0, most, every)]
    return SharePlot(tuple(lines), tuple(positions), QUARTERS)


def time_plots(
    cells: Sequence[CellRecord], shares: Sequence[float], names: tuple[str, str]
) -> list[TimePlot]:
    """Times of both sides of each cell at 50, 90 and 99 percent of the requests."""
    found = []
    for key, title in TIMES:
        rows = [(per_cell(cell), _marks(cell, key, shares, names)) for cell in cells]
        rows = [(name, marks) for name, marks in rows if marks]
        most = max((times[-1] for _, marks in rows for _, times in marks), default=0.0)
        if most > 0:
            scale = most * _ROOM
            made = tuple(
                BarRow(name, tuple(_bar(side, times, scale) for side, times in marks))
                for name, marks in rows
            )
            found.append(TimePlot(title, made, time_ticks(scale)))
    return found


Marks = tuple[float, float, float]


def _marks(
    cell: CellRecord, key: str, shares: Sequence[float], names: tuple[str, str]
) -> list[tuple[str, Marks]]:
    found = []
    for name, side in zip(names, (cell.candidate, cell.baseline), strict=True):
        values = quantiles_of(side, key)
        if values:
            p50, p90, p99 = (at_share(shares, values, one) for one in (0.5, 0.9, 0.99))
            found.append((name, (p50, p90, p99)))
    return found


def _bar(side: str, times: Marks, scale: float) -> Bar:
    p50, p90, p99 = (one / scale * _TOTAL for one in times)
    return Bar(side, p50, p90, p99, (seconds(times[0]), seconds(times[1]), seconds(times[2])))


def distributions(
    cell: CellRecord, shares: Sequence[float], names: tuple[str, str]
) -> list[Distribution]:
    """How the times of a cell are spread, a curve a side."""
    found = []
    for key, title in TIMES:
        sides = [
            (name, quantiles_of(side, key))
            for name, side in zip(names, (cell.candidate, cell.baseline), strict=True)
        ]
        most = max((values[-1] for _, values in sides if values), default=0.0)
        if most <= 0:
            continue
        scale = most * _ROOM
        curves = tuple(
            Curve(name, _steps(shares, values, scale)) for name, values in sides if values
        )
        found.append(Distribution(title, curves, time_ticks(scale)))
    return found


def _steps(shares: Sequence[float], values: Sequence[float], scale: float) -> str:
    points = [
        f"{value / scale * _TOTAL:.2f},{_TOTAL * (1 - share):.2f}"
        for share, value in zip(shares, values, strict=True)
    ]
    return " ".join([f"{points[0].partition(',')[0]},100", *points, "100,0"])


def quantiles_of(side: NumbersRecord, key: str) -> Sequence[float]:
    """The times of a side by the name of what is told."""
    found: Sequence[float] = getattr(side.quantiles, key)
    return found


def at_share(shares: Sequence[float], values: Sequence[float], wanted: float) -> float:
    """The time at a share of the requests, between the two that are known."""
    for (low, before), (high, after) in pairwise(zip(shares, values, strict=True)):
        if low <= wanted <= high:
            part = (wanted - low) / (high - low) if high > low else 0.0
            return before + (after - before) * part
    return values[-1]


def time_ticks(scale: float) -> tuple[Tick, ...]:
    """Round times of a scale from 0 to `scale` seconds."""
    if scale < _SHORTEST:
        return (Tick(0.0, "0"),)
    rough = scale / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(one * power for one in _STEPS if one * power >= rough)
    count = int(scale / step)
    return tuple(
        Tick(step * number / scale * _TOTAL, seconds(step * number)) for number in range(count + 1)
    )


def seconds(value: float) -> str:
    """`1.25 s`, `84 ms`, `3.1 ms`."""
    if value == 0:
        return "0"
    for unit, word in ((1.0, "s"), (1e-3, "ms")):
        number = value / unit
        if number >= _WHOLE:
            return f"{number:,.0f} {word}"
        if number >= _LEAST:
            return f"{number:.3g} {word}"
    return f"{1e6 * value:.3g} us"
