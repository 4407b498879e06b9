"""The two streams: results on standard output, everything said on the way on standard error."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO

from speclaunch.app.output.styled import PlainPrinter, Printer
from speclaunch.core import printable, redact

if TYPE_CHECKING:
    from rich.console import Console

_PIPED_WIDTH = 400
"""Tables are laid out for a width; a pipe has none."""
_DRAW = ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
"""Variables by which rich takes a pipe for a terminal."""


@cache
def err() -> Console:
    """Progress and errors, drawn by rich."""
    return _console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())


@cache
def out() -> Console:
    """Results, drawn by rich. Never wrapped when piped, so that paths and commands stay whole."""
    width = None if sys.stdout.isatty() else _PIPED_WIDTH
    return _console(highlight=False, soft_wrap=True, width=width)


def _console(**settings: Any) -> Console:
    from speclaunch.app.output.safe_console import SafeConsole  # noqa: PLC0415  rich is slow to import

    return SafeConsole(markup=False, **settings)


def write_exact(text: str) -> None:
    """Write the content of a file to standard output, unchanged unless a terminal reads it."""
    getattr(sys.stdout, "write_exact", sys.stdout.write)(text)


def write_commands(text: str) -> None:
    """Write workflow commands of ours to standard output."""
    getattr(sys.stdout, "write_commands", sys.stdout.write)(printable(redact(text)))


def err_lines() -> Printer:
    """Progress and errors of which nothing but lines is shown."""
    return err() if is_drawn(sys.stderr) else PlainPrinter(sys.stderr)


def out_lines() -> Printer:
    """Results of which nothing but lines is shown."""
    return out() if is_drawn(sys.stdout) else PlainPrinter(sys.stdout)


def is_drawn(stream: TextIO) -> bool:
    """Whether styles are shown on a stream, as rich decides."""
    return stream.isatty() or any(name in os.environ for name in _DRAW)
