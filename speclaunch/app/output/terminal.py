"""Text on a terminal with rich: tables, lines, and a console that text cannot control."""

from __future__ import annotations

import textwrap
from collections.abc import Container, Iterable, Sequence
from typing import IO, Any, Literal

from msgspec import Struct
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from speclaunch.core import printable


class SafeConsole(Console):
    """Console that escapes control characters in text but sends its own codes to the terminal."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text = segment.text
            if segment.control or text.isprintable():
                yield segment
            else:
                yield Segment(printable(text), segment.style)

    @property
    def file(self) -> IO[str]:
        stream: Any = Console.file.fget(self)  # type: ignore[attr-defined]
        return _Drawing(stream) if hasattr(stream, "write_drawn") else stream  # type: ignore[return-value]

    @file.setter
    def file(self, new: IO[str]) -> None:
        Console.file.fset(self, new)  # type: ignore[attr-defined]


class _Drawing:
    """Stream whose `write` passes terminal codes through."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.write = stream.write_drawn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def plain_table(
    columns: Iterable[str],
    *,
    right: Container[str] = (),
    overflow: Literal["ignore", "ellipsis", "fold"] = "ignore",
) -> Table:
    """Return a table without rows.

    `right`: columns to align right. `overflow`: treatment of cells that are too long; `fold` breaks
    them into several lines.
    """
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in right else "left"
        table.add_column(column, justify=justify, no_wrap=overflow != "fold", overflow=overflow)
    return table


_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float | None], width: int) -> str:
    """Return values over time as bars scaled from minimum to maximum; missing values leave gaps.

    More than `width` values are shown as means of neighboring values.
    """
    size = max(1, -(-len(values) // width))
    parts = [values[start : start + size] for start in range(0, len(values), size)]
    known = [[value for value in part if value is not None] for part in parts]
    means = [sum(some) / len(some) if some else None for some in known]
    present = [mean for mean in means if mean is not None]
    if not present:
        return ""
    low, span = min(present), max(present) - min(present)
    return "".join(
        " " if mean is None else _BARS[round((mean - low) / span * 7) if span else 3]
        for mean in means
    )


def label_line(
    label: str, text: str | Text, width: int, style: str = "dim", *, indent: int = 2
) -> Text:
    """Return a line with a label and its text; `width`: columns of the label."""
    return Text.assemble((f"{' ' * indent}{label:<{width}}", style), text)


NARROW = 100
"""Width in columns below which a table row takes several lines."""
_PIPE = 100
"""Width of a picture in a pipe, in columns."""
_ASCII = str.maketrans(
    {
        "\N{HORIZONTAL ELLIPSIS}": "...",
        "\N{MULTIPLICATION SIGN}": "x",
        "\N{RIGHTWARDS ARROW}": "->",
        "\N{EN DASH}": "-",
        "\N{MIDDLE DOT}": ".",
        "\N{MINUS SIGN}": "-",
        "\N{ALMOST EQUAL TO}": "~",
    }
)


class TableCell(Struct, frozen=True):
    """Cell of a table that `LineWriter` prints."""

    text: str
    style: str = ""
    below: str = ""
    """Dimmed text below the cell's text, such as a source."""


class LineWriter(Struct, frozen=True):
    """Writer of lines that fit the width of a console."""

    console: Console

    @property
    def width(self) -> int | None:
        """Columns of the terminal; None for a pipe, where lines may have any length."""
        return self.console.width if self.console.is_terminal else None

    @property
    def picture(self) -> int:
        """Width of a picture in columns."""
        return min(self.width or _PIPE, 120)

    @property
    def narrow(self) -> bool:
        """True if a table row must take several lines."""
        return self.width is not None and self.width < NARROW

    def can(self, letters: str) -> bool:
        """True if the output encoding supports `letters`."""
        try:
            letters.encode(self.console.encoding)
        except (UnicodeEncodeError, LookupError):
            return False
        return True

    def line(self, *parts: str | tuple[str, str]) -> None:
        """Print one line; a tuple is a text with its style."""
        text = Text()
        for part in parts:
            content, style = (part, "") if isinstance(part, str) else part
            text.append(self.plain(content), style)
        text.rstrip()
        self.console.print(text)

    def text(self, text: Text) -> None:
        """Print prepared text without wrapping."""
        shown = text.copy()
        shown.plain = "\n".join(self.plain(line) for line in text.plain.split("\n"))
        self.console.print(shown)

    def heading(self, title: str, note: str = "") -> None:
        self.console.print()
        self.line((title, "bold"), (f"  {note}" if note else "", "dim"))

    def say(self, text: str, style: str = "", *, indent: int = 0, mark: str = "") -> None:
        """Print a sentence, wrapped to the width with a hanging indent."""
        room = None if self.width is None else max(20, self.width - indent - len(mark))
        for number, piece in enumerate(wrapped(self.plain(text), room)):
            lead = mark if number == 0 else " " * len(mark)
            self.line(" " * indent, lead, (piece, style))

    def table(
        self, rows: Iterable[Sequence[TableCell]], most: Sequence[int], *, indent: int = 2
    ) -> None:
        """Print rows in columns up to `most` wide; the last column takes the remaining width.

        A row with one cell is a heading. Columns that are empty in all rows are omitted.
        """
        laid = [list(row) for row in rows]
        multiple = [row for row in laid if len(row) > 1]
        if not multiple:
            return
        widths = [
            min(limit, max(len(row[column].text) for row in multiple))
            for column, limit in enumerate(most)
        ]
        last = (self.width or 0) - indent - sum(widths) - 2 * len(widths)
        for row in laid:
            if len(row) == 1:
                self.line(" " * indent, (row[0].text, row[0].style))
            else:
                self._row(row, [*widths, max(24, last)], indent)

    def _row(self, row: Sequence[TableCell], widths: Sequence[int], indent: int) -> None:
        columns = [self._pieces(cell, width) for cell, width in zip(row, widths, strict=True)]
        for number in range(max(len(column) for column in columns)):
            parts: list[str | tuple[str, str]] = [" " * indent]
            for column, width in zip(columns, widths, strict=True):
                piece, style = column[number] if number < len(column) else ("", "")
                parts += [(piece, style), " " * max(2, width - len(piece) + 2)]
            self.line(*parts)

    def _pieces(self, cell: TableCell, width: int) -> list[tuple[str, str]]:
        """Return a cell's styled lines; in a pipe, one line, so that a row can be searched."""
        if self.width is None:
            return [(f"{cell.text} [{cell.below}]" if cell.below else cell.text, cell.style)]
        found = [(piece, cell.style) for piece in wrapped(self.plain(cell.text), width)]
        return found + [(piece, "dim") for piece in wrapped(self.plain(cell.below), width) if piece]

    def plain(self, text: str) -> str:
        """Replace control characters, and characters that the encoding lacks."""
        text = text.replace("\n", " ")
        shown = "".join(letter if letter.isprintable() else "?" for letter in text)
        if self.can(shown):
            return shown
        encoding = self.console.encoding
        try:
            return shown.translate(_ASCII).encode(encoding, "replace").decode(encoding)
        except LookupError:
            return shown.translate(_ASCII).encode("ascii", "replace").decode()


def wrapped(text: str, room: int | None) -> list[str]:
    """Return the lines of a text wrapped at `room` columns; one line for None."""
    if room is None or len(text) <= room:
        return [text]
    lines = textwrap.wrap(text, room, break_on_hyphens=False, break_long_words=False)
    pieces = [line[at : at + room] for line in lines for at in range(0, len(line), room)]
    return pieces or [""]
