"""Output streams: results on standard output, messages on standard error."""

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
"""Width of tables in a pipe, in columns."""
_DRAW = ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
"""Variables that make rich treat a pipe as a terminal."""


@cache
def err() -> Console:
    """Return the rich console for progress and errors."""
    return _console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())


@cache
def out() -> Console:
    """Return the rich console for results.

    Piped output is never wrapped, so that paths and commands are not broken.
    """
    width = None if sys.stdout.isatty() else _PIPED_WIDTH
    return _console(highlight=False, soft_wrap=True, width=width)


def _console(**settings: Any) -> Console:
    from speclaunch.app.output.safe_console import SafeConsole  # noqa: PLC0415  rich is slow to import

    return SafeConsole(markup=False, **settings)


def write_exact(text: str) -> None:
    """Write file content to standard output, unchanged unless it is a terminal."""
    getattr(sys.stdout, "write_exact", sys.stdout.write)(text)


def write_commands(text: str) -> None:
    """Write our own workflow commands to standard output."""
    getattr(sys.stdout, "write_commands", sys.stdout.write)(printable(redact(text)))


def err_lines() -> Printer:
    """Return the printer for progress and errors that consist of lines only."""
    return err() if is_drawn(sys.stderr) else PlainPrinter(sys.stderr)


def out_lines() -> Printer:
    """Return the printer for results that consist of lines only."""
    return out() if is_drawn(sys.stdout) else PlainPrinter(sys.stdout)


def is_drawn(stream: TextIO) -> bool:
    """True if styles are shown on a stream, by rich's criteria."""
    return stream.isatty() or any(name in os.environ for name in _DRAW)
