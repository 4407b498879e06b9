"""Standard input, read with limits on size and time."""

from __future__ import annotations

import sys

from speclaunch.core import InputError, Problem, read_stream, reason


def read_stdin() -> bytes:
    """Return all of standard input. Raises InputError if it is too large, slow or unreadable."""
    try:
        return read_stream(sys.stdin.buffer)
    except OSError as error:
        help_ = "write it to a file and pass the file" if isinstance(error, TimeoutError) else None
        raise InputError(
            Problem(f"cannot read standard input: {reason(error)}", help=help_)
        ) from None
