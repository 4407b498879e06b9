"""Text in pieces with styles, which is drawn on a terminal and written as it is everywhere else.

rich is imported where something is drawn: it takes as long as the rest of a quick answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from rich.text import Text

_NOT_PRINTED = dict.fromkeys((7, 8, 11, 12, 13))
"""Bell, backspace, vertical tab, form feed, carriage return: rich leaves them out, too."""


class Styled:
    """Text, piece by piece: each with the name of a style of rich; empty: none."""

    __slots__ = ("pieces",)

    def __init__(self, text: str = "", style: str = "") -> None:
        self.pieces: list[tuple[str, str]] = [(text, style)] if text else []

    def append(self, text: str, style: str = "") -> Styled:
        """The same with one more piece."""
        self.pieces.append((text, style))
        return self

    def extend(self, other: Styled) -> Styled:
        """The same with the pieces of another one."""
        self.pieces += other.pieces
        return self

    @property
    def plain(self) -> str:
        """The text alone."""
        return "".join(text for text, _ in self.pieces)

    def drawn(self) -> Text:
        """The same as a text of rich."""
        from rich.text import Text  # noqa: PLC0415

        drawn = Text()
        for text, style in self.pieces:
            drawn.append(text, style or None)
        return drawn

    __rich__ = drawn


def many(count: int, noun: str) -> str:
    """`1 request`, `2 requests`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


class Printer(Protocol):
    """What prints lines: rich's console, or `PlainPrinter`."""

    def print(self, *texts: Styled | str, style: str | None = None, markup: bool = False) -> None:
        """Print texts, a space between two, and end the line."""


class PlainPrinter:
    """Writes lines to a stream without any style, as rich does for what is no terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def print(self, *texts: Styled | str, style: str | None = None, markup: bool = False) -> None:  # noqa: ARG002
        """Write texts, a space between two, and end the line."""
        said = " ".join(text if isinstance(text, str) else text.plain for text in texts)
        said = said.translate(_NOT_PRINTED)
        if "\t" in said:
            said = "\n".join(_untabbed(line) for line in said.split("\n"))
        self._stream.write(f"{said}\n")


def _untabbed(line: str) -> str:
    from rich.text import Text  # noqa: PLC0415  it knows how wide characters are

    text = Text(line)
    text.expand_tabs(8)
    return text.plain
