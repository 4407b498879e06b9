"""Results of `bench` as text, for terminals and in Markdown."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from rich.console import Console
from rich.text import Text

from speclaunch.app.output.terminal import plain_table
from speclaunch.measure import (
    BenchListing,
    CellDifferenceRecord,
    CellRecord,
    CertificateDocument,
    DifferenceDocument,
    Interval,
    MeasuredRecord,
    RatioRecord,
    SideRecord,
    SingleCellRecord,
    SingleDocument,
    arguments,
)


class InCell(Protocol):
    """Fields that identify a cell: workload, context length and concurrency."""

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
    """Return a cell's name: `chat, 4,096 tokens, at 1`; `concurrency`: include `at 1`."""
    context = f", {cell.context:,} tokens" if cell.context else ""
    at = f"{',' if context else ''} at {cell.concurrency}" if concurrency else ""
    return f"{cell.workload}{context}{at}"


def span(found: Interval | RatioRecord) -> str:
    """Return an interval as text: `1.10 to 1.35`."""
    return f"{ratio(found.low)} to {ratio(found.high)}"


def ratio(number: float) -> str:
    """Return a ratio as text: `1.25`; three significant digits below 0.01 and from 1000 up."""
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
    """Return a time as text: `1250 ms`; empty for None."""
    return "" if seconds is None else f"{1000 * seconds:.{digits}f} ms"


def length(found: MeasuredRecord) -> str:
    """Return the acceptance length as text; empty without speculation."""
    return "" if found.accept_length is None else f"{found.accept_length:.2f}"


def confidence(found: CertificateDocument) -> str:
    """Return the confidence level as text: `95%`."""
    return f"{100 * (1 - found.error_rate):g}%"


def intervals_mean(found: CertificateDocument) -> list[str]:
    """Return lines that explain the intervals of a valid certificate."""
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
    """Return a line per cell with published lengths, and True if the cell's is far below them."""
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


def has_context(found: CertificateDocument | SingleDocument) -> bool:
    """True if context lengths were requested."""
    return any(cell.context for cell in found.cells)


def context(cell: InCell) -> str:
    """Return the context length as text: `4,096`, or `as is` for unchanged prompts."""
    return f"{cell.context:,}" if cell.context else "as is"


def goodput(cell: CellRecord) -> list[str]:
    """Return each side's goodput and the ratio as text; empty texts if goodput was not measured."""
    found = cell.goodput
    if found is None:
        return ["", "", ""]
    ratio_text = "-" if found.ratio is None else f"{ratio(found.ratio.ratio)} ({span(found.ratio)})"
    return [f"{found.candidate:.2f}/s", f"{found.baseline:.2f}/s", ratio_text]


def bounds(found: CertificateDocument) -> str:
    """Return the latency bounds of goodput: `ttft 500 ms, tpot 50 ms`."""
    return ", ".join(f"{name} {most:g} ms" for name, most in found.goodput_within.items())


def memory_note(found: CertificateDocument) -> str:
    """Return a comparison of both sides' KV tokens; empty if a side does not report any."""
    tokens = [usage.max_total_num_tokens for usage in found.memory]
    if len(tokens) != 2 or not tokens[0] or not tokens[1]:
        return ""
    percent = 100 * (tokens[0] / tokens[1] - 1)
    change = f"{percent:+.{0 if abs(percent) >= 1 else 2}f}%" if percent else "the same"
    return f"KV cache: {tokens[0]:,} tokens instead of {tokens[1]:,} ({change})"


def command_text(side: SideRecord) -> str:
    """Return a side's command, ready to paste, or the address if the server was already running."""
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
    """Return the row of `cell`, in the order of `DIFFERENCE_COLUMNS`."""
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
    """Return an explanation of the intervals of a comparison."""
    sure = f"{100 * (1 - found.error_rate):g}%"
    return (
        f"A ratio above 1 means that {found.after} is faster. The intervals of all speed-ups hold "
        f"simultaneously with {sure} confidence, as do those of all throughputs (Welch's, "
        "unpaired). Throughputs were measured at different times, so other changes affect them."
    )


COLORS = {
    **dict.fromkeys(("pays", "faster"), "green"),
    **dict.fromkeys(("does not pay", "slower"), "red"),
    "not shown": "yellow",
}
NOTHING_COUNTS = "The measurement does not count:"
_TEXT_COLUMNS = ("workload", "")
_SINGLE_COLUMNS = ("concurrency", "tokens/s", "latency", "TTFT", "TPOT", "accept length")


def show_certificate(console: Console, found: CertificateDocument) -> None:
    """Print the verdict, then the numbers that support it."""
    _show_title(console, f"{found.candidate} against {found.baseline}", found)
    if not found.counts:
        return
    heads = columns(found)
    table = plain_table(
        heads, right=[head for head in heads if head not in _TEXT_COLUMNS], overflow="ellipsis"
    )
    for cell in found.cells:
        table.add_row(*map(Text, row(found, cell)), Text(cell.claim, COLORS[cell.claim]))
    console.print(table)
    for cell in found.cells:
        if cell.candidate.accepted_by_position:
            shares = percents(cell.candidate.accepted_by_position)
            _show_note(console, f"accepted by position, {per_cell(cell)}: {shares}")
    if note := memory_note(found):
        _show_note(console, note)
    _show_published(console, found)
    console.print(found.sentence)
    for line in intervals_mean(found):
        _show_note(console, line)


def _show_title(console: Console, title: str, found: CertificateDocument | SingleDocument) -> None:
    console.print(Text(title, "bold"))
    for caveat in found.caveats:
        console.print(Text(f"note: {caveat}", "yellow"))
    if not found.counts:
        console.print(Text(NOTHING_COUNTS, "bold red"))
        for objection in found.objections:
            console.print(f"  {objection.message}")


def _show_note(console: Console, text: str, style: str = "dim") -> None:
    console.print(text, style=style)


def columns(found: CertificateDocument) -> list[str]:
    """Return the column titles; context length and goodput only if requested."""
    return [
        "workload",
        *(["context"] if has_context(found) else []),
        "concurrency",
        "tokens/s",
        "baseline",
        "speed-up",
        "interval",
        "latency",
        "TPOT",
        "accept length",
        *(["goodput", "baseline", "ratio"] if found.goodput_within else []),
        "",
    ]


def row(found: CertificateDocument, cell: CellRecord) -> list[str]:
    """Return a cell's table row without its last column, the claim."""
    ours, theirs = cell.candidate, cell.baseline
    return [
        cell.workload,
        *([context(cell)] if has_context(found) else []),
        str(cell.concurrency),
        throughput(ours),
        throughput(theirs),
        ratio(cell.speed_up.ratio),
        span(cell.speed_up),
        milliseconds(ours.latency),
        milliseconds(ours.time_per_output_token, 1),
        length(ours),
        *(goodput(cell) if found.goodput_within else []),
    ]


def show_single(console: Console, found: SingleDocument) -> None:
    """Print the numbers of one server, and a note that they are not a comparison."""
    _show_title(console, found.candidate, found)
    if not found.counts:
        return
    heads = single_columns(found)
    table = plain_table(heads, right=heads[1:], overflow="ellipsis")
    for cell in found.cells:
        table.add_row(*single_row(found, cell))
    console.print(table)
    for side in found.memory:
        if side.max_total_num_tokens:
            _show_note(console, f"KV cache: {side.max_total_num_tokens:,} tokens")
    _show_published(console, found)
    console.print(found.sentence)


def _show_published(console: Console, found: CertificateDocument | SingleDocument) -> None:
    for line, far_below in published(found):
        _show_note(console, line, "yellow" if far_below else "dim")


def single_columns(found: SingleDocument) -> list[str]:
    """Return the column titles for a single server."""
    return [
        "workload",
        *(["context"] if has_context(found) else []),
        *_SINGLE_COLUMNS,
        *(["goodput"] if found.goodput_within else []),
    ]


def single_row(found: SingleDocument, cell: SingleCellRecord) -> list[str]:
    """Return a cell's table row, in the order of `single_columns`."""
    own = cell.candidate
    return [
        cell.workload,
        *([context(cell)] if has_context(found) else []),
        str(cell.concurrency),
        throughput(own),
        milliseconds(own.latency),
        milliseconds(own.time_to_first_token),
        milliseconds(own.time_per_output_token, 1),
        length(own),
        *(["" if own.goodput is None else f"{own.goodput:.2f}/s"] if found.goodput_within else []),
    ]


def show_difference(console: Console, found: DifferenceDocument) -> None:
    """Print each common cell of two certificates with its verdict, then other differences."""
    console.print(Text(f"{found.after} against {found.before}", "bold"))
    heads = DIFFERENCE_COLUMNS
    table = plain_table(heads, right=heads[1:-1], overflow="ellipsis")
    for cell in found.cells:
        *texts, verdict = difference_row(cell)
        table.add_row(*map(Text, texts), Text(verdict, COLORS[verdict]))
    console.print(table)
    for line in (*alone(found), *found.notes):
        _show_note(console, line, "yellow")
    for diff in found.arguments:
        console.print(f"arguments of the {diff.side}:")
        for line in diff.lines:
            color = "green" if line.startswith("+") else "red"
            console.print(Text(f"  {line}", color))
    _show_note(console, difference_means(found))


def show_benches(console: Console, found: Iterable[BenchListing]) -> None:
    """Print a table of the stored comparisons, newest last."""
    table = plain_table(("comparison", "state", "rounds", "measured", "sides"))
    for listing in found:
        table.add_row(
            Text(listing.name, "bold"),
            Text(listing.state, COLORS.get(listing.state, "dim")),
            str(listing.rounds),
            listing.updated[:19].replace("T", " "),
            Text(" against ".join(listing.sides)),
        )
    console.print(table)


def list_document(found: Iterable[BenchListing]) -> dict[str, Any]:
    """Return the stored comparisons as a JSON document."""
    return {
        "version": 1,
        "benches": [
            {
                "name": listing.name,
                "state": listing.state,
                "rounds": listing.rounds,
                "measured": listing.updated,
                "sides": list(listing.sides),
                "path": str(listing.path),
            }
            for listing in found
        ],
    }


_MEANS = re.compile(r"([\\`*_{}\[\]<>#|~&@])")
"""Characters that GitHub interprets as markup, a mention, or the end of a cell.

`escaped` adds a zero-width non-joiner after `@`, because a backslash does not prevent a mention.
"""
_LIST = re.compile(r"^(\s*)([-+]|\d+[.)])(?=\s)")
_NO_MENTION = "@\N{ZERO WIDTH NON-JOINER}"


def escaped(text: str) -> str:
    """Return the text as one line of Markdown that GitHub shows literally."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    line = _MEANS.sub(lambda found: _NO_MENTION if found[0] == "@" else f"\\{found[0]}", line)
    return _LIST.sub(r"\1\\\2", line)


def certificate_markdown(found: CertificateDocument) -> str:
    """Return a certificate as Markdown, with the commands folded."""
    title = f"**{escaped(found.candidate)}** against **{escaped(found.baseline)}**"
    lines = _markdown_head(title, found)
    if not found.counts:
        return "\n".join(lines)
    heads = [*columns(found)[:-1], "verdict"]
    rows = [[*row(found, cell), cell.claim] for cell in found.cells]
    lines += [escaped(found.sentence), "", *table(heads, rows), ""]
    shares = [
        f"- accepted by position, {escaped(per_cell(cell))}: "
        + percents(cell.candidate.accepted_by_position)
        for cell in found.cells
        if cell.candidate.accepted_by_position
    ]
    if note := memory_note(found):
        shares.append(f"- {escaped(note)}")
    shares += [f"- {escaped(line)}" for line, _ in published(found)]
    lines += [*shares, ""] if shares else []
    lines += intervals_mean(found)
    commands = [x for side in found.sides for x in ("", *_code(command_text(side)))]
    if commands:
        lines += ["", "<details><summary>Commands</summary>", *commands, "", "</details>"]
    return "\n".join([*lines, ""])


def single_markdown(found: SingleDocument) -> str:
    """Return the results of a single server as Markdown."""
    lines = _markdown_head(f"**{escaped(found.candidate)}**", found)
    if not found.counts:
        return "\n".join(lines)
    rows = [single_row(found, cell) for cell in found.cells]
    lines += [*table(single_columns(found), rows), ""]
    lengths = [f"- {escaped(line)}" for line, _ in published(found)]
    lines += [*lengths, ""] if lengths else []
    return "\n".join([*lines, escaped(found.sentence), ""])


def _markdown_head(title: str, found: CertificateDocument | SingleDocument) -> list[str]:
    """Return the title and caveats, and the objections if the measurement does not count."""
    lines = [title, "", *(f"Note: {escaped(caveat)}\n" for caveat in found.caveats)]
    if not found.counts:
        objections = (f"- {escaped(objection.message)}" for objection in found.objections)
        lines += [NOTHING_COUNTS, "", *objections, ""]
    return lines


def difference_markdown(found: DifferenceDocument) -> str:
    """Return the comparison of two certificates as Markdown."""
    lines = [f"**{escaped(found.after)}** against **{escaped(found.before)}**", ""]
    lines += [*table(DIFFERENCE_COLUMNS, map(difference_row, found.cells)), ""]
    remarks = [*alone(found), *found.notes]
    lines += [*(f"- {escaped(remark)}" for remark in remarks), ""] if remarks else []
    for diff in found.arguments:
        lines += [f"Arguments of the {diff.side}:", "", *_code("\n".join(diff.lines), "diff"), ""]
    return "\n".join([*lines, escaped(difference_means(found)), ""])


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table with escaped cells."""
    numbers = {"workload", "cell", "verdict"}
    return [
        f"| {' | '.join(map(escaped, heads))} |",
        f"|{'|'.join('---' if head in numbers else '---:' for head in heads)}|",
        *(f"| {' | '.join(map(escaped, cells))} |" for cells in rows),
    ]


def _code(text: str, language: str = "sh") -> list[str]:
    """Return the lines of a code block whose fence does not occur in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *text.splitlines(), fence]
