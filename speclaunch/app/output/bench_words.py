"""Wording of a certificate's cells and numbers, shared by all output formats."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Protocol

from speclaunch.measure import (
    CellDifferenceRecord,
    CellRecord,
    CertificateDocument,
    DifferenceDocument,
    Interval,
    MeasuredRecord,
    RatioRecord,
    SideRecord,
    SingleDocument,
    arguments,
)


class InCell(Protocol):
    """Keys of a cell."""

    @property
    def workload(self) -> str:
        """Name of the workload."""

    @property
    def context(self) -> int:
        """Tokens per prompt; 0 for unchanged prompts."""

    @property
    def concurrency(self) -> int:
        """Number of concurrent requests."""


def per_cell(cell: InCell, *, concurrency: bool = True) -> str:
    """Return the name of a cell: `code at 8`, `chat, 4,096 tokens, at 1`."""
    context = f", {cell.context:,} tokens" if cell.context else ""
    at = f"{',' if context else ''} at {cell.concurrency}" if concurrency else ""
    return f"{cell.workload}{context}{at}"


def span(found: Interval | RatioRecord) -> str:
    """Return an interval as text: `1.10 to 1.35`."""
    return f"{ratio(found.low)} to {ratio(found.high)}"


def ratio(number: float) -> str:
    """Return a ratio as text: `1.25`; with fewer digits if it is far from 1."""
    return f"{number:.2f}" if 0.01 <= number < 1000 else f"{number:.3g}"


def speed_up(cell: CellRecord) -> str:
    """Return the speed-up with its interval: `1.25 (1.10 to 1.35)`."""
    return f"{ratio(cell.speed_up.ratio)} ({span(cell.speed_up)})"


def throughput(side: MeasuredRecord) -> str:
    """Return output tokens per second as text: `52.1`."""
    return f"{side.output_tokens_per_second:.1f}"


def percents(shares: Iterable[float]) -> str:
    """Return shares as text: `80% 62% 41%`."""
    return " ".join(f"{100 * share:.0f}%" for share in shares)


def milliseconds(seconds: float | None, digits: int = 0) -> str:
    """Return a time as text: `1250 ms`; empty if nothing was measured."""
    return "" if seconds is None else f"{1000 * seconds:.{digits}f} ms"


def length(found: MeasuredRecord) -> str:
    """Return the acceptance length; empty without speculation."""
    return "" if found.accept_length is None else f"{found.accept_length:.2f}"


def confidence(found: CertificateDocument) -> str:
    """Return the confidence level as text: `95%`."""
    return f"{100 * (1 - found.error_rate):g}%"


def intervals_mean(found: CertificateDocument) -> list[str]:
    """Return the meaning of the intervals of a valid certificate."""
    pairs = f"{found.cells[0].speed_up.pairs} pairs of rounds per cell"
    if found.starts > 1:
        pairs += f", in {found.starts} starts of both sides; each start counts once"
    lines = [f"All intervals hold simultaneously with {confidence(found)} confidence ({pairs})."]
    if not found.holds_starts:
        lines.append(
            "Each side was started once: the intervals exclude variation between starts "
            "(use --starts 3)."
        )
    return lines


def published(found: CertificateDocument | SingleDocument) -> list[tuple[str, bool]]:
    """Return a line per cell with its published acceptance, and True if the cell is far below."""
    lines = []
    for cell in found.published:
        below = "far below the " if cell.far_below else ""
        grounds = "; ".join((*cell.differences, *cell.sources))
        lines.append(
            (
                f"accept length, {per_cell(cell)}: {cell.accept_length:.2f}, {below}published "
                f"{cell.lowest:.2f} to {cell.highest:.2f} ({grounds})",
                cell.far_below,
            )
        )
    return lines


def has_context(found: CertificateDocument) -> bool:
    """True if context lengths were requested."""
    return any(cell.context for cell in found.cells)


def context(cell: InCell) -> str:
    """Return the context length as text: `4,096`, or `as is` for unchanged prompts."""
    return f"{cell.context:,}" if cell.context else "as is"


def goodput(cell: CellRecord) -> list[str]:
    """Return both sides' requests per second within the bounds, and their ratio, if any."""
    found = cell.goodput
    if found is None:
        return ["", "", ""]
    ratio_text = "-" if found.ratio is None else f"{ratio(found.ratio.ratio)} ({span(found.ratio)})"
    return [f"{found.candidate:.2f}/s", f"{found.baseline:.2f}/s", ratio_text]


def bounds(found: CertificateDocument) -> str:
    """Return the latency bounds as text: `ttft 500 ms, tpot 50 ms`."""
    return ", ".join(f"{name} {most:g} ms" for name, most in found.goodput_within.items())


def memory(found: CertificateDocument) -> str:
    """Return the KV tokens that speculation costs; empty if a side does not report KV tokens."""
    tokens = [usage.max_total_num_tokens for usage in found.memory]
    if len(tokens) != 2 or not tokens[0] or not tokens[1]:
        return ""
    percent = 100 * (tokens[0] / tokens[1] - 1)
    change = f"{percent:+.{0 if abs(percent) >= 1 else 2}f}%" if percent else "the same"
    return f"KV cache: {tokens[0]:,} tokens instead of {tokens[1]:,} ({change})"


def command_text(side: SideRecord) -> str:
    """Return a side's command to paste, with one variable or option per line.

    For a server that was already running, return its address.
    """
    if side.url is not None:
        return side.url
    removed = [name for name, value in side.environment.items() if value is None]
    parts = [" ".join(["env", *(f"-u {shlex.quote(name)}" for name in removed)])] if removed else []
    parts += [
        f"{name}={shlex.quote(value)}"
        for name, value in side.environment.items()
        if value is not None
    ]
    quoted = arguments([shlex.quote(word) for word in side.command])
    return " \\\n  ".join([*parts, *quoted])


DIFFERENCE_COLUMNS = (
    "cell",
    "before",
    "after",
    "ratio of speed-ups",
    "interval",
    "throughput",
    "verdict",
)


def difference_row(cell: CellDifferenceRecord) -> list[str]:
    """Return the texts of a row in the comparison of two certificates."""
    return [
        per_cell(cell),
        ratio(cell.before.ratio),
        ratio(cell.after.ratio),
        ratio(cell.speed_up.ratio),
        span(cell.speed_up),
        f"{ratio(cell.throughput.ratio)} ({span(cell.throughput)})",
        cell.verdict,
    ]


def alone(found: DifferenceDocument) -> list[str]:
    """Return lines naming the cells that only one certificate has."""
    sides = ((found.before, found.only_before), (found.after, found.only_after))
    return [
        f"only in {name}: {', '.join(per_cell(cell) for cell in cells)}"
        for name, cells in sides
        if cells
    ]


def difference_means(found: DifferenceDocument) -> str:
    """Return the meaning of the intervals of a comparison."""
    sure = f"{100 * (1 - found.error_rate):g}%"
    return (
        f"A ratio above 1 means that {found.after} is faster. The intervals of all speed-ups hold "
        f"simultaneously with {sure} confidence, as do those of all throughputs (Welch's, "
        "unpaired). Throughputs were measured at different times, so they include other changes."
    )
