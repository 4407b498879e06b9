"""A console of rich that draws text of others without obeying it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from speclaunch.core import printable


class SafeConsole(Console):
    """Escapes control characters in what it draws; its own codes reach the terminal."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments, control characters of their texts escaped."""
        for segment in super().render(renderable, options):
            text = segment.text
            if segment.control or text.isprintable():
                yield segment
            else:
                yield Segment(printable(text), segment.style)

    @property
    def file(self) -> IO[str]:
        """The stream, behind its escaping of control characters."""
        stream: Any = Console.file.fget(self)  # type: ignore[attr-defined]
        return _Drawing(stream) if hasattr(stream, "write_drawn") else stream  # type: ignore[return-value]

    @file.setter
    def file(self, new: IO[str]) -> None:
        Console.file.fset(self, new)  # type: ignore[attr-defined]


class _Drawing:
    """A stream whose `write` lets codes for the terminal pass."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.write = stream.write_drawn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
