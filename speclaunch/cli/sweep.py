"""`speclaunch -m …` and `speclaunch sweep`: many configurations, one table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from speclaunch.cli.formats import OutputFormat
from speclaunch.cli.options import (
    Assume,
    ConfigDirs,
    EngineVersion,
    HardwareName,
    Ignore,
    ModelDirs,
    Online,
    Select,
    TrustEngine,
)


def sweep(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RECIPE[,RECIPE…] [key=value,value…]…",
            help="Recipes and Hydra overrides with several values: a,b · range(1,4) · "
            "glob(eagle*). hydra/launcher=joblib chooses who runs the jobs.",
        ),
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Plan each job; start nothing.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the jobs, and why some are refused; run none.")
    ] = False,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume",
            metavar="DIR",
            help="Continue the sweep of this folder. The same command continues its own, too.",
        ),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--directory",
            metavar="DIR",
            help="The sweep's folder. Default: one in speclaunch's home, by the words. For a "
            "cluster: on storage that its nodes share.",
        ),
    ] = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="Run jobs that failed or were refused again.")
    ] = False,
    config_dir: ConfigDirs = None,
    engine: EngineVersion = None,
    hardware: HardwareName = None,
    models: ModelDirs = None,
    online: Online = False,
    assume: Assume = None,
    select: Select = None,
    ignore: Ignore = None,
    output_format: Annotated[
        OutputFormat, typer.Option("--output-format", help="Output format.")
    ] = OutputFormat.TEXT,
    trust_engine: TrustEngine = False,
) -> None:
    """Start (or plan) every combination of some settings, and show one table.

    `speclaunch -m recipe=a,b key=1,2` is the same.
    """
    from speclaunch.cli.sweeping import SweepWords, run
    from speclaunch.sweep.jobs import SweepOptions

    options = SweepOptions(
        plan=plan,
        config_dir=tuple(str(one) for one in config_dir or ()),
        engine=engine,
        hardware=hardware,
        models=tuple(str(one) for one in models or ()),
        online=online,
        assume=tuple(assume or ()),
        select=tuple(select or ()),
        ignore=tuple(ignore or ()),
        trust_engine=trust_engine,
    )
    asked = SweepWords(tuple(words or ()), options, dry_run, resume, directory, retry)
    document, code = run(asked, quiet=output_format is OutputFormat.JSON)
    if output_format is OutputFormat.JSON:
        typer.echo(json.dumps(document, indent=2))
    raise typer.Exit(code)
