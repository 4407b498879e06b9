"""The two streams: results on standard output, everything said on the way on standard error."""

from __future__ import annotations

import sys
from functools import cache

from rich.console import Console

_PIPED_WIDTH = 400
"""Tables are laid out for a width; a pipe has none."""


@cache
def err() -> Console:
    """Progress and errors."""
    return Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())


@cache
def out() -> Console:
    """Results. Never wrapped when piped, so that paths and commands stay whole."""
    width = None if sys.stdout.isatty() else _PIPED_WIDTH
    return Console(highlight=False, soft_wrap=True, width=width)
