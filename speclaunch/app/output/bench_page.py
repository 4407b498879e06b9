"""A certificate as one self-contained HTML page to attach to a change request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import groupby, pairwise

from jinja2 import Environment
from msgspec import Struct

from speclaunch.app.output import bench, formatting
from speclaunch.app.output.bench import per_cell, ratio
from speclaunch.app.output.plan_page import page_environment
from speclaunch.measure import CellRecord, CertificateDocument, NumbersRecord, SideMemory

HEIGHT = 190.0
"""Height of a plot in pixels, from its highest to its lowest value."""
_ROOM = 1.06
"""Factor by which a scale exceeds the shown values."""
_RATIOS = (1, 1.1, 1.2, 1.3, 1.5, 1.7, 2, 2.5, 3, 4, 5, 7, 8, 9, 10)
"""Possible labels of a ratio scale within each power of ten."""
_STEPS = (1, 2, 2.5, 5, 10)
_TICKS = 6
"""Maximum number of labels on an axis."""
MOST_LABELS = 8
"""Maximum number of points for which a plot shows labels; the table has all numbers."""
_TOTAL = 100.0
_INTEGER = 99.95
"""Smallest number that is shown without decimals."""
_LEAST = 0.9995
"""Smallest number that rounds to 1 at three significant digits."""
_SHORTEST = 1e-12
"""Minimum length of a scale in seconds."""


class Tick(Struct, frozen=True):
    """Label of an axis: position and text."""

    at: float
    text: str


QUARTERS = tuple(Tick(HEIGHT * (1 - part / 4), f"{25 * part}%") for part in range(5))


class RatioPoint(Struct, frozen=True):
    """Speed-up of a cell: `at` in percent of the width, ratios in pixels from the top."""

    at: float
    ratio: float
    low: float
    high: float
    claim: str
    text: str
    label: str
    """Label below the point: the concurrency."""


class RatioPlot(Struct, frozen=True):
    """Speed-ups by concurrency; `even` is the position of ratio 1."""

    points: tuple[RatioPoint, ...]
    ticks: tuple[Tick, ...]
    even: float


class Curve(Struct, frozen=True):
    """Line as SVG points, in a field of 100 by 100."""

    name: str
    points: str


class Dot(Struct, frozen=True):
    """Labeled point of a line: `at` in percent of the width, `down` in pixels from the top."""

    at: float
    down: float
    text: str


class ShareLine(Struct, frozen=True):
    """Acceptance rate of a workload by draft position, from position 1."""

    name: str
    dots: tuple[Dot, ...]

    @property
    def points(self) -> str:
        """Points in SVG format, in a field of 100 by 100."""
        return " ".join(f"{dot.at:.2f},{dot.down / HEIGHT * _TOTAL:.2f}" for dot in self.dots)


class SharePlot(Struct, frozen=True):
    """Chart of acceptance by draft position, one line per workload."""

    lines: tuple[ShareLine, ...]
    positions: tuple[Tick, ...]
    ticks: tuple[Tick, ...]


class Bar(Struct, frozen=True):
    """Times of a side in percent of the width: a bar to the median, marks at p90 and p99."""

    side: str
    p50: float
    p90: float
    p99: float
    texts: tuple[str, str, str]


class BarRow(Struct, frozen=True):
    """Times of both sides of a cell."""

    name: str
    bars: tuple[Bar, ...]


class TimePlot(Struct, frozen=True):
    """Times of all cells for one metric."""

    title: str
    rows: tuple[BarRow, ...]
    ticks: tuple[Tick, ...]


class Distribution(Struct, frozen=True):
    """Share of requests that finish within each time, with one curve per side."""

    title: str
    curves: tuple[Curve, ...]
    ticks: tuple[Tick, ...]


TIMES = (
    ("latency", "End-to-end latency"),
    ("time_to_first_token", "Time to first token"),
    ("time_per_output_token", "Time per output token after the first"),
)


def ratio_scale(cells: Sequence[CellRecord]) -> tuple[float, float]:
    """Return the lowest and highest ratio of a chart that includes all intervals and 1."""
    low = min(1.0, *(cell.speed_up.low for cell in cells))
    high = max(1.0, *(cell.speed_up.high for cell in cells))
    low, high = max(low, 1e-3), min(high, 1e3)
    return min(low / _ROOM, 0.95), max(high * _ROOM, 1.05)


def ratio_plot(cells: Sequence[CellRecord], scale: tuple[float, float]) -> RatioPlot:
    """Return the chart of a workload's speed-ups on a logarithmic axis."""
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
    ticks = tuple(Tick(down(tick), f"{tick:g}") for tick in ratio_ticks(low, high))
    return RatioPlot(points, ticks, down(1.0))


def ratio_ticks(low: float, high: float) -> list[float]:
    """Return the round ratios to label on a scale, including 1."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = [10.0**power * digit for power in range(first, last + 1) for digit in _RATIOS]
    inside = sorted({float(f"{tick:.3g}") for tick in every if low <= tick <= high} | {1.0})
    least = (math.log(high) - math.log(low)) / (_TICKS + 1)
    chosen = [1.0]
    for tick in sorted(inside, key=_niceness):
        if all(abs(math.log(tick) - math.log(other)) >= least for other in chosen):
            chosen.append(tick)
    return sorted(chosen)


def _niceness(ratio: float) -> tuple[int, float]:
    """Return a sort key: fewest digits first, then nearest to 1."""
    return len(f"{ratio:g}".strip("0.").replace(".", "")), abs(math.log(ratio))


def share_plot(cells: Sequence[CellRecord]) -> SharePlot | None:
    """Return a chart of acceptance by draft position, at each workload's lowest concurrency.

    None if no draft token was proposed.
    """
    chosen: dict[tuple[str, int], CellRecord] = {}
    for cell in sorted(cells, key=lambda cell: cell.concurrency):
        if cell.candidate.accepted_by_position:
            chosen.setdefault((cell.workload, cell.context), cell)
    if not chosen:
        return None
    order = dict.fromkeys((cell.workload, cell.context) for cell in cells)
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
    """Return a plot per metric with the median, p90 and p99 times of each cell."""
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
            p50, p90, p99 = (at_share(shares, values, share) for share in (0.5, 0.9, 0.99))
            found.append((name, (p50, p90, p99)))
    return found


def _bar(side: str, times: Marks, scale: float) -> Bar:
    p50, p90, p99 = (time / scale * _TOTAL for time in times)
    return Bar(side, p50, p90, p99, (seconds(times[0]), seconds(times[1]), seconds(times[2])))


def distributions(
    cell: CellRecord, shares: Sequence[float], names: tuple[str, str]
) -> list[Distribution]:
    """Return a cell's distribution of times for each measured metric."""
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
    """Return a side's quantiles of the metric `key`, in seconds; empty if not measured."""
    found: Sequence[float] = getattr(side.quantiles, key)
    return found


def at_share(shares: Sequence[float], values: Sequence[float], share: float) -> float:
    """Interpolate the time within which a share of the requests finishes."""
    for (low, before), (high, after) in pairwise(zip(shares, values, strict=True)):
        if low <= share <= high:
            part = (share - low) / (high - low) if high > low else 0.0
            return before + (after - before) * part
    return values[-1]


def time_ticks(scale: float) -> tuple[Tick, ...]:
    """Return labels at evenly spaced times on an axis from 0 to `scale` seconds."""
    if scale < _SHORTEST:
        return (Tick(0.0, "0"),)
    rough = scale / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in _STEPS if factor * power >= rough)
    count = int(scale / step)
    return tuple(
        Tick(step * number / scale * _TOTAL, seconds(step * number)) for number in range(count + 1)
    )


def seconds(value: float) -> str:
    """Return a time as text: `1.25 s`, `84 ms`, `3.1 ms`."""
    if value == 0:
        return "0"
    for unit, word in ((1.0, "s"), (1e-3, "ms")):
        number = value / unit
        if number >= _INTEGER:
            return f"{number:,.0f} {word}"
        if number >= _LEAST:
            return f"{number:.3g} {word}"
    return f"{1e6 * value:.3g} us"


KINDS = {"pays": "good", "does not pay": "bad", "not shown": "odd"}
"""CSS class of each claim."""
COLUMNS = (
    "cell",
    "tokens/s",
    "speed-up (interval)",
    "latency",
    "TTFT",
    "TPOT",
    "accept length",
    "accepted by position",
    "goodput",
)


def certificate_page(found: CertificateDocument) -> str:
    """Return the HTML page of a certificate. The output is deterministic."""
    template = _environment().get_template("certificate.html.j2")
    names = (found.candidate, found.baseline)
    scale = ratio_scale(found.cells) if found.cells else (1.0, 1.0)
    return template.render(
        found=found,
        names=names,
        COLUMNS=COLUMNS if found.goodput_within else COLUMNS[:-1],
        claims=claims(found.cells),
        plots=[
            (bench.per_cell(cells[0], concurrency=False), cells, ratio_plot(cells, scale))
            for cells in by_workload(found.cells)
        ],
        shares=share_plot(found.cells),
        times=time_plots(found.cells, found.quantiles, names),
        spreads=[
            (bench.per_cell(cell), distributions(cell, found.quantiles, names))
            for cell in found.cells
        ],
    )


@cache
def _environment() -> Environment:
    found = page_environment()
    found.filters["px"] = lambda number: f"{number:.2f}"
    found.globals.update(
        words=bench,
        KINDS=KINDS,
        HEIGHT=HEIGHT,
        MOST_LABELS=MOST_LABELS,
        QUARTERS=QUARTERS,
        command=bench.command_text,
        memory_rows=memory_rows,
        engines=engines,
    )
    return found


def by_workload(cells: Sequence[CellRecord]) -> list[list[CellRecord]]:
    """Return the cells grouped by workload and context length, in order of concurrency."""

    def key(cell: CellRecord) -> tuple[int, int]:
        return names.index(cell.workload), cell.context

    names = list(dict.fromkeys(cell.workload for cell in cells))
    ordered = sorted(cells, key=lambda cell: (*key(cell), cell.concurrency))
    return [list(some) for _, some in groupby(ordered, key=key)]


def claims(cells: Sequence[CellRecord]) -> list[tuple[str, str]]:
    """Return texts such as `code: pays at 1, 8`, each with its claim."""
    results: list[tuple[str, str]] = []
    for some in by_workload(cells):
        name = bench.per_cell(some[0], concurrency=False)
        for claim in KINDS:
            at = [str(cell.concurrency) for cell in some if cell.claim == claim]
            if at:
                results.append((f"{name}: {claim} at {', '.join(at)}", claim))
    return results


def engines(found: CertificateDocument) -> str:
    """Return engines and hardware: `SGLang 0.5.23 on cpu`; `An engine` if unknown."""
    versions = dict.fromkeys(side.engine for side in found.sides if side.engine)
    text = f"SGLang {' and '.join(versions)}" if versions else ""
    return f"{text} on {found.hardware}" if text and found.hardware else text or "An engine"


def memory_rows(rows: Sequence[SideMemory]) -> list[tuple[str, str, str, str]]:
    """Return each side's name, KV tokens, percentage of the larger count, and bytes."""
    most = max((row.max_total_num_tokens or 0 for row in rows), default=0)
    return [
        (
            row.side,
            "unknown"
            if row.max_total_num_tokens is None
            else formatting.number(row.max_total_num_tokens),
            formatting.percent(row.max_total_num_tokens / most)
            if most and row.max_total_num_tokens is not None
            else "",
            "unknown" if row.bytes is None else formatting.size(row.bytes),
        )
        for row in rows
    ]
