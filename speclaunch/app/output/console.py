"""Output streams, and text that is styled on a terminal and plain elsewhere."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from speclaunch.core import printable, redact

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


_NOT_PRINTED = dict.fromkeys((7, 8, 11, 12, 13))
"""Characters to remove from output, as rich does: bell, backspace, vertical tab, form feed and
carriage return."""


class Styled:
    """Text in pieces, each with the name of a rich style (empty for no style)."""

    __slots__ = ("pieces",)

    def __init__(self, text: str = "", style: str = "") -> None:
        self.pieces: list[tuple[str, str]] = [(text, style)] if text else []

    def append(self, text: str, style: str = "") -> Styled:
        self.pieces.append((text, style))
        return self

    def extend(self, other: Styled) -> Styled:
        self.pieces += other.pieces
        return self

    @property
    def plain(self) -> str:
        return "".join(text for text, _ in self.pieces)

    def drawn(self) -> Text:
        from rich.text import Text  # noqa: PLC0415

        drawn = Text()
        for text, style in self.pieces:
            drawn.append(text, style or None)
        return drawn

    __rich__ = drawn


def many(count: int, noun: str) -> str:
    """Return a count with its noun: `1 request`, `2 requests`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


class Printer(Protocol):
    """Interface that `PlainPrinter` shares with rich's console."""

    def print(self, *texts: Styled | str, style: str | None = None) -> None:
        """Print texts separated by spaces, and end the line."""


class PlainPrinter:
    """Printer that writes lines without styles, as rich does outside a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def print(self, *texts: Styled | str, style: str | None = None) -> None:  # noqa: ARG002
        output = " ".join(text if isinstance(text, str) else text.plain for text in texts)
        output = output.translate(_NOT_PRINTED)
        if "\t" in output:
            output = "\n".join(_untabbed(line) for line in output.split("\n"))
        self._stream.write(f"{output}\n")


def _untabbed(line: str) -> str:
    from rich.text import Text  # noqa: PLC0415  it knows how wide characters are

    text = Text(line)
    text.expand_tabs(8)
    return text.plain


_PIPED_WIDTH = 400
"""Width of tables in a pipe, in columns."""
_DRAW = ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
"""Environment variables that make rich treat a pipe as a terminal."""


@cache
def err() -> Console:
    """Return the rich console for progress and errors."""
    return _console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())


@cache
def out() -> Console:
    """Return the rich console for results. It does not wrap piped output, so paths stay intact."""
    width = None if sys.stdout.isatty() else _PIPED_WIDTH
    return _console(highlight=False, soft_wrap=True, width=width)


def _console(**settings: Any) -> Console:
    from speclaunch.app.output.terminal import SafeConsole  # noqa: PLC0415  rich is slow to import

    return SafeConsole(markup=False, **settings)


def write_exact(text: str) -> None:
    """Write file content to standard output, unchanged unless a terminal or CI service reads it."""
    getattr(sys.stdout, "write_exact", sys.stdout.write)(text)


def write_commands(text: str) -> None:
    """Write speclaunch's own CI commands, such as `::error`, to standard output."""
    getattr(sys.stdout, "write_commands", sys.stdout.write)(printable(redact(text)))


def err_lines() -> Printer:
    """Return the line printer for progress and errors."""
    return err() if is_drawn(sys.stderr) else PlainPrinter(sys.stderr)


def out_lines() -> Printer:
    """Return the line printer for results."""
    return out() if is_drawn(sys.stdout) else PlainPrinter(sys.stdout)


def is_drawn(stream: TextIO) -> bool:
    """True if styles are shown on a stream, by rich's criteria."""
    return stream.isatty() or any(name in os.environ for name in _DRAW)
