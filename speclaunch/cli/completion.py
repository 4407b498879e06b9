"""`speclaunch completion`: the script that completes words in bash, zsh or fish."""

from __future__ import annotations

from typing import Annotated

import typer

from speclaunch.cli.completion_scripts import SCRIPTS
from speclaunch.engine.nearest import suggest
from speclaunch.errors import InputError, Problem


def completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help=f"{', '.join(SCRIPTS)}.")],
) -> None:
    """Print the script that completes verbs, options, recipes and overrides in a shell."""
    if shell not in SCRIPTS:
        known = f"use one of {', '.join(SCRIPTS)}"
        near = suggest(shell, SCRIPTS)
        raise InputError(
            Problem(f"no completion for {shell!r}", help=f"{near} {known}" if near else known)
        )
    typer.echo(SCRIPTS[shell], nl=False)
