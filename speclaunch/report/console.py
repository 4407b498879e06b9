"""The two streams: results on standard output, everything said on the way on standard error."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING, TextIO

from speclaunch.report.styled import PlainPrinter, Printer

if TYPE_CHECKING:
    from rich.console import Console

_PIPED_WIDTH = 400
"""Tables are laid out for a width; a pipe has none."""
_DRAW = ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
"""Variables by which rich takes a pipe for a terminal."""


@cache
def err() -> Console:
    """Progress and errors, drawn by rich."""
    from rich.console import Console  # noqa: PLC0415  slow to import, and often not needed

    return Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())


@cache
def out() -> Console:
    """Results, drawn by rich. Never wrapped when piped, so that paths and commands stay whole."""
    from rich.console import Console  # noqa: PLC0415

    width = None if sys.stdout.isatty() else _PIPED_WIDTH
    return Console(highlight=False, soft_wrap=True, width=width)


def err_lines() -> Printer:
    """Progress and errors of which nothing but lines is shown."""
    return err() if is_drawn(sys.stderr) else PlainPrinter(sys.stderr)


def out_lines() -> Printer:
    """Results of which nothing but lines is shown."""
    return out() if is_drawn(sys.stdout) else PlainPrinter(sys.stdout)


def is_drawn(stream: TextIO) -> bool:
    """Whether styles are shown on a stream, as rich decides."""
    return stream.isatty() or any(name in os.environ for name in _DRAW)
