"""rich console that shows untrusted text without executing control characters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from speclaunch.core import printable


class SafeConsole(Console):
    """Console that escapes control characters in text but sends its own codes to the terminal."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments with control characters in their text escaped."""
        for segment in super().render(renderable, options):
            text = segment.text
            if segment.control or text.isprintable():
                yield segment
            else:
                yield Segment(printable(text), segment.style)

    @property
    def file(self) -> IO[str]:
        """Stream that does not escape control characters again."""
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
