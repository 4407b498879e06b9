"""Arguments and options that several verbs share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

Overrides = Annotated[
    list[str],
    typer.Argument(
        metavar="RECIPE [key=value]…",
        help="The recipe (`recipe=NAME`, `NAME` or a path to a YAML file) and Hydra overrides.",
    ),
]
ConfigDirs = Annotated[
    list[Path] | None,
    typer.Option("--config-dir", help="Your own recipes and groups. Repeatable."),
]
EngineVersion = Annotated[
    str | None,
    typer.Option("--engine", metavar="VERSION", help="The SGLang version to spell it for."),
]
HardwareName = Annotated[
    str | None,
    typer.Option(
        "--hardware",
        metavar="NAME[:COUNT]",
        help="What it will run on: h100, h100-80gb:8, a100-40gb, rtx4090, b200, mi300x, cpu.",
    ),
]


class OutputFormat(StrEnum):
    """How results are written."""

    TEXT = "text"
    JSON = "json"
