"""What `bench` and `tune` ask an engine for: their options in common."""

from __future__ import annotations

from typing import Annotated

import typer

Requests = Annotated[int, typer.Option("--requests", min=2, help="Requests of a round, at least.")]
OutputTokens = Annotated[int, typer.Option("--output-tokens", min=8, help="Tokens of each answer.")]
InputTokens = Annotated[
    int, typer.Option("--input-tokens", min=4, help="Tokens of each prompt of `random`.")
]
