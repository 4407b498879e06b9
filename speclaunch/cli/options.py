"""Arguments and options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from speclaunch.asking.mode import Ask

Overrides = Annotated[
    list[str],
    typer.Argument(
        metavar="RECIPE [key=value]…",
        help="The recipe (`recipe=NAME`, `NAME` or a path to a YAML file) and Hydra overrides.",
    ),
]
ConfigDirs = Annotated[
    list[Path] | None,
    typer.Option("--config-dir", metavar="DIR", help="Your own recipes and groups. Repeatable."),
]
EngineVersion = Annotated[
    str | None,
    typer.Option(
        "--engine", metavar="VERSION", help="The SGLang version to write the arguments for."
    ),
]
HardwareName = Annotated[
    str | None,
    typer.Option(
        "--hardware",
        metavar="NAME[:COUNT]",
        help="The hardware to run on: h100, h100-80gb:8, a100-40gb, rtx4090, b200, mi300x, cpu.",
    ),
]


EngineVersions = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="VERSION[,VERSION…]",
        help="SGLang versions to check for; `installed`, or the path of a package, checkout or "
        "wheel for an engine that is not a release. Default: the recipe's, else the "
        "installed engine's, else the newest known.",
    ),
]
ModelDirs = Annotated[
    list[Path] | None,
    typer.Option(
        "--models",
        metavar="DIR",
        help="Where checkpoints are: DIR/organisation/name/config.json, or a hub cache. "
        "Repeatable.",
    ),
]
Online = Annotated[
    bool, typer.Option("--online", help="Fetch missing model configurations from the hub.")
]
Assume = Annotated[
    list[str] | None,
    typer.Option(
        "--assume",
        metavar="NAME=SIBLING",
        help="Take the checkpoint NAME, of which nothing is known, to be as the checkpoint "
        "SIBLING. Repeatable.",
    ),
]
Select = Annotated[
    list[str] | None,
    typer.Option(
        "--select", metavar="CODE,…", help="Check only rules whose code starts with this."
    ),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option("--ignore", metavar="CODE,…", help="Skip rules whose code starts with this."),
]
RoleName = Annotated[
    str | None,
    typer.Option("--role", metavar="NAME", help="The role, of a recipe that has several."),
]
AskEngine = Annotated[
    Ask | None,
    typer.Option(
        "--ask",
        help="Ask the engine itself, without starting it: `auto` where that release is available, "
        "`always`, `never`.",
    ),
]
TrustEngine = Annotated[
    bool,
    typer.Option(
        "--trust-engine",
        help="Run the interpreter that a recipe names (engine.python) to identify its engine. "
        "Without it only the files of its environment are read, unless the engine is started.",
    ),
]
