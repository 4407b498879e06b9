"""`speclaunch lsp`: the language server for editors."""

from __future__ import annotations

import gc
from importlib.util import find_spec

from speclaunch.app.verbs.change_options import LspOptions
from speclaunch.core import InputError, Problem


def lsp(options: LspOptions) -> None:  # noqa: ARG001 - it always uses stdio
    """Serve an editor until it exits. Raises InputError."""
    if find_spec("pygls") is None or find_spec("lsprotocol") is None:
        raise InputError(
            Problem("the language server needs pygls", help="pip install 'speclaunch[lsp]'")
        )
    gc.enable()  # `main` disables it for short commands; the server runs for hours
    from speclaunch.checks import run_and_leave

    run_and_leave()
