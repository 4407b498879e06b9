"""`speclaunch lsp`: the language server for editors."""

from __future__ import annotations

import gc
from importlib.util import find_spec
from typing import Annotated

import typer

from speclaunch.errors import InputError, Problem


def lsp(
    stdio: Annotated[  # noqa: ARG001
        bool, typer.Option("--stdio", help="Speak on standard input and output: it always does.")
    ] = True,
) -> None:
    """Check deployments while you type: the language server that an editor starts."""
    if find_spec("pygls") is None or find_spec("lsprotocol") is None:
        raise InputError(
            Problem("the language server needs pygls", help="pip install 'speclaunch[lsp]'")
        )
    gc.enable()  # a command is over before it has garbage; this goes on for hours
    from speclaunch.lsp.server import run_and_leave

    run_and_leave()
