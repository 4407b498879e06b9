"""`speclaunch lsp`: the language server for editors."""

from __future__ import annotations

import gc
from importlib.util import find_spec

from speclaunch.app.verbs.change_options import LspOptions
from speclaunch.core import InputError, Problem


def lsp(options: LspOptions) -> None:  # noqa: ARG001 - `--stdio` is what it always does
    """Serve an editor until it ends. Raises InputError."""
    if find_spec("pygls") is None or find_spec("lsprotocol") is None:
        raise InputError(
            Problem("the language server needs pygls", help="pip install 'speclaunch[lsp]'")
        )
    gc.enable()  # a command is over before it has garbage; this goes on for hours
    from speclaunch.checks import run_and_leave

    run_and_leave()
