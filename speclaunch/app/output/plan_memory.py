"""Memory budget of a plan: text on a terminal, and pictures of memory and decode batch sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from speclaunch.app.output import formatting
from speclaunch.app.output.terminal import LineWriter, TableCell
from speclaunch.engine import Choice, Fit, Margins, MemoryBudget, MemoryShare, MemoryUse, RankBudget
from speclaunch.measure import BatchCoverage, BatchSpan, Coverage, NoCoverage

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
"""Letters of the memory uses, for bars without colors. Lower-case `w` and `k`: the draft's."""
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
"""Colors of the memory uses, distinct for readers with red-green color blindness."""


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
    """Return the memory shares above zero, in the order of `MemoryUse`."""
    order = {use: place for place, use in enumerate(MemoryUse)}
    shares = [share for share in rank.shares if share.size.bytes > 0]
    return tuple(sorted(shares, key=lambda share: order[share.use]))


def cells(rank: RankBudget, width: int) -> tuple[BarPart, ...]:
    """Return a bar's segments, at least one cell each; empty if `width` cells are too few.

    If memory is short, the last cells are past the end of the memory; `beyond` counts them.
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
    """Return the number of cells for each size, at least 1; their sum is `width`."""
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
"""Minimum width, in percent, of a piece that shows its letter."""
_BARS = 360
"""Maximum number of bars; with more batch sizes, each bar shows the worst of several."""
_HIGHEST = 60


class BarPiece(Struct, frozen=True):
    """Piece of a memory bar, in percent of its width. `beyond`: past the end of the memory."""

    share: MemoryShare
    at: float
    width: float
    beyond: bool

    @property
    def lettered(self) -> bool:
        return self.width >= _LETTER


class MemoryBar(Struct, frozen=True):
    """Memory of a GPU from left to right; excess use extends past `end`."""

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
    """Yield each span of batch sizes with one decode mode, its position and its width."""
    for span in found.spans():
        at = (span.first - 1) * 100 / found.most
        yield span, at, (span.last - span.first + 1) * 100 / found.most


def padding(found: Coverage) -> Iterator[tuple[float, float, float]]:
    """Yield each padding bar's position, width and height; the highest shows the most waste."""
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
    """Yield each batch size to label below a chart, with its position and text anchor."""
    ends = {1: ("start", 0.0), most: ("end", 100.0)} if most > 8 else {}
    for tick in sorted({1, *(max(1, round(most * part / 4)) for part in range(1, 5))}):
        anchor, place = ends.get(tick, ("middle", (tick - 0.5) * 100 / most))
        yield tick, place, anchor


_HEADS = {
    Fit.FITS: ("fits", "bold green"),
    Fit.TIGHT: ("tight: fits only in the best case", "bold yellow"),
    Fit.FAILS: ("does not fit", "bold red"),
    Fit.UNKNOWN: ("memory use unknown", "bold magenta"),
}
_BEYOND = "bold white on red"


def show_budget(paper: LineWriter, budget: MemoryBudget, margins: Margins | None = None) -> None:
    """Print the complete budget."""
    head, style = _HEADS[budget.fit]
    paper.heading("Memory")
    paper.line("  ", (head, style))
    paper.say(budget.why, indent=2)
    if budget.phase is not None:
        paper.say(f"the start fails at: {budget.phase.value}", "bold red", indent=2)
    if budget.message:
        paper.say(f"the engine's message: {budget.message}", indent=2)
    for fact in missing(budget):
        paper.say(f"missing: {fact}", "magenta", indent=2)
    for rank in budget.ranks:
        _show_rank(paper, rank)
    facts = numbers(budget, margins)
    if facts:
        paper.line()
        paper.table([[TableCell(name), TableCell(text)] for name, text in facts], (34,))
    for note in budget.notes:
        paper.say(note, indent=2, mark="note: ")


_FEW = 5


def show_memory(paper: LineWriter, budget: MemoryBudget) -> None:
    """Print the verdict and up to five memory numbers."""
    head, style = _HEADS[budget.fit]
    paper.heading("Memory")
    paper.line("  ", (head, style))
    if budget.fit is not Fit.FITS:
        paper.say(budget.why, indent=2)
    if budget.message:
        paper.say(f"the engine's message: {budget.message}", indent=2)
    for fact in missing(budget):
        paper.say(f"missing: {fact}", "magenta", indent=2)
    few = [row for row in numbers(budget) if not row[0].startswith("KV cache of")][:_FEW]
    paper.table([[TableCell(name), TableCell(text)] for name, text in few], (34,))


def missing(budget: MemoryBudget) -> list[str]:
    """Return the missing facts that the verdict does not name."""
    return [fact for fact in budget.unknown if fact not in budget.why]


def numbers(budget: MemoryBudget, margins: Margins | None = None) -> list[tuple[str, str]]:
    """Return each memory number as a name and a text."""
    found: list[tuple[str, str]] = []
    if budget.tokens is not None:
        found.append(("tokens in the KV cache", formatting.number(budget.tokens)))
    for name, per_token in (("target", budget.target_kv), ("draft", budget.draft_kv)):
        if per_token is not None:
            about = "" if per_token.exact else "about "
            text = f"{about}{formatting.size(per_token.bytes)} ({per_token.why})"
            found.append((f"KV cache of a token, {name}", text))
    if budget.running_requests is not None:
        found.append(("maximum running requests", formatting.number(budget.running_requests)))
    if budget.requests_at_context is not None:
        context = budget.context_length
        length = "the full context" if context is None else f"{formatting.number(context)} tokens"
        found.append((f"requests of {length}", formatting.number(budget.requests_at_context)))
    elif budget.context_length is not None:
        found.append(("context length", formatting.number(budget.context_length)))
    if budget.mem_fraction_static is not None:
        found.append(("mem_fraction_static", f"{budget.mem_fraction_static:.4g}"))
    if margins is not None:
        found += margin_rows(margins, budget.context_length)
    elif budget.working_fractions is not None:
        found.append(edge_row(*budget.working_fractions))
    elif budget.fit is Fit.FAILS and budget.phase is not None:
        found.append(("mem_fraction_static that works", "none"))
    return found


def _show_rank(paper: LineWriter, rank: RankBudget) -> None:
    paper.line()
    each = " each" if len(rank.ranks) > 1 else ""
    paper.line(
        "  ",
        (formatting.ranks(rank.ranks), "bold"),
        f", {formatting.size(rank.memory_bytes)}{each}",
    )
    width = paper.picture - 6
    parts = cells(rank, width)
    bar: list[str | tuple[str, str]] = ["  ["]
    inside = 0
    for part in parts:
        letter = LETTERS[part.use]
        bar.append((letter * (part.cells - part.beyond), _style(part.use)))
        inside += part.cells - part.beyond
        if part.beyond:
            if inside >= 0:
                bar.append("]")
                inside = -width
            bar.append((letter * part.beyond, _BEYOND))
    paper.line(*bar, "]" if inside >= 0 else "")
    if rank.short_bytes > 0:
        beyond = sum(part.beyond for part in parts)
        label = f"{formatting.size(rank.short_bytes)} short"
        lead = 4 + width - beyond
        if lead > len(label) + 3:
            paper.line(" " * (lead - len(label) - 1), (f"{label} {'^' * beyond}", "bold red"))
        else:
            paper.line(" " * lead, ("^" * beyond, "bold red"))
            paper.say(label, "bold red", indent=2)
    _legend(paper, rank)


def _legend(paper: LineWriter, rank: RankBudget) -> None:
    rows = []
    for share in used(rank):
        about = "" if share.size.exact else "about "
        part = formatting.percent(share.size.bytes / rank.memory_bytes) if rank.memory_bytes else ""
        rows.append(
            [
                TableCell(LETTERS[share.use], _style(share.use)),
                TableCell(share.use.value),
                TableCell(f"{about}{formatting.size(share.size.bytes)}"),
                TableCell(part),
                TableCell(share.size.why, "dim"),
            ]
        )
    if not paper.narrow:
        paper.table(rows, (1, 26, 16, 8))
        return
    for letter, *shown, why in rows:
        text = "  ".join(cell.text for cell in shown)
        paper.line("  ", (letter.text, letter.style), f" {text}")
        if why.text:
            paper.say(why.text, "dim", indent=4)


def _style(use: MemoryUse) -> str:
    color = COLORS[use]
    if not color:
        return "dim"
    return f"{ink(color)} on {color}"


def margin_rows(found: Margins, context: int | None) -> list[tuple[str, str]]:
    """Return a title and text per margin: fraction, KV tokens, and requests of `context` tokens."""
    rows = []
    for name, choice in (("certain", found.certain), ("likely", found.likely)):
        text = "none" if choice is None else f"up to {_choice_text(choice, context)}"
        rows.append((f"mem_fraction_static, {name}", text))
    return [*rows, edge_row(found.least, found.edge.fraction)]


def edge_row(low: float, high: float) -> tuple[str, str]:
    """Return the title and text for the range of fractions that may work."""
    return "mem_fraction_static, edge", f"{low:.3f} to {high:.3f}, possible (best case)"


def _choice_text(choice: Choice, context: int | None) -> str:
    text = f"{choice.fraction:.3f}: {formatting.number(choice.tokens)} tokens"
    if context:
        number = min(choice.tokens // context, choice.running_requests)
        many = "no request" if not number else formatting.many(number, "request")
        text += f", {many} of {formatting.number(context)}"
    if choice.spare_bytes:
        text += f"; {formatting.size(choice.spare_bytes)} free in the best case"
    return text


_MARKS = {
    BatchCoverage.CAPTURED: ("\N{FULL BLOCK}", "#", "green"),
    BatchCoverage.PADDED: ("\N{MEDIUM SHADE}", "+", "yellow"),
    BatchCoverage.UNCOVERED: ("\N{MIDDLE DOT}", ".", "red"),
}
"""Unicode mark, ASCII mark and color by coverage."""
_BADNESS = {BatchCoverage.CAPTURED: 0, BatchCoverage.PADDED: 1, BatchCoverage.UNCOVERED: 2}
_LINES = 6


def show_coverage(paper: LineWriter, found: Coverage | NoCoverage) -> None:
    """Print the coverage by CUDA graphs and the padding, or why there is no coverage."""
    paper.heading("CUDA graphs of decode")
    if isinstance(found, NoCoverage):
        lead = "unknown: " if found.unknown else ""
        paper.say(lead + found.why, "magenta" if found.unknown else "", indent=2)
        return
    plain = not paper.can("".join(mark for mark, _, _ in _MARKS.values()))
    each = _picture(paper, found, plain=plain)
    legend = [
        f"{_MARKS[covered][plain]} {covered.value}: {formatting.number(found.count(covered))}"
        for covered in BatchCoverage
    ]
    about = f", each mark shows the worst of {formatting.many(each, 'size')}" if each > 1 else ""
    paper.say(
        f"{'   '.join(legend)}   of {formatting.many(found.most, 'batch size')}{about}", indent=2
    )
    for sentence in sentences(found):
        paper.say(sentence, indent=2)


def sentences(found: Coverage) -> list[str]:
    """Return sentences about captured sizes, padding and uncovered batches."""
    texts = [f"captured sizes: {formatting.sizes(found.sizes)}"]
    worst = found.worst
    if worst is not None:
        texts.append(
            f"padding: {formatting.percent(found.average_waste)} of a graph on average, at worst "
            f"{formatting.percent(found.waste(worst))} (a batch of {worst} runs as "
            f"{found.graph_for(worst)})"
        )
    largest = found.sizes[-1] if found.sizes else 0
    if largest < found.most:
        texts.append(f"batches above {largest} decode without a graph")
    if not found.pads:
        texts.append("disable_cuda_graph_padding: only captured batch sizes use a graph")
    if found.note:
        texts.append(found.note)
    return texts


def _picture(paper: LineWriter, found: Coverage, *, plain: bool) -> int:
    """Print rows of marks after their first batch size; return the number of sizes per mark."""
    margin = len(str(found.most)) + 4
    width = max(10, (paper.picture - margin) // 10 * 10)
    each = -(-found.most // (width * _LINES))
    width = min(width, -(-found.most // each))
    for first in range(1, found.most + 1, width * each):
        parts: list[str | tuple[str, str]] = [f"{first:>{margin - 2}}  "]
        for start in range(first, min(first + width * each, found.most + 1), each):
            batches = range(start, min(start + each, found.most + 1))
            worst = max((found.covered(batch) for batch in batches), key=_BADNESS.__getitem__)
            letter, ascii_letter, color = _MARKS[worst]
            parts.append((ascii_letter if plain else letter, color))
        paper.line(*parts)
    return each
