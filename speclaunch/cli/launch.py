"""`speclaunch launch`: compose, validate, start, verify, serve."""

from __future__ import annotations

from typing import Annotated

import typer

from speclaunch.cli.formats import OutputFormat
from speclaunch.cli.options import (
    AskEngine,
    Assume,
    ConfigDirs,
    EngineVersion,
    HardwareName,
    Ignore,
    ModelDirs,
    Online,
    Overrides,
    RoleName,
    Select,
    TrustEngine,
)


def launch(
    overrides: Overrides,
    config_dir: ConfigDirs = None,
    role: RoleName = None,
    engine: EngineVersion = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print the exact command and environment, and the recovery steps if memory runs "
            "out; start nothing.",
        ),
    ] = False,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Start, verify, report, stop; exit 0 if it serves.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return once it serves, and leave it running.")
    ] = False,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh", help="Start with the recipe itself, not with the last known good settings."
        ),
    ] = False,
    max_attempts: Annotated[
        int | None,
        typer.Option(
            "--max-attempts",
            min=1,
            max=100,
            help="Start the engine at most this often until it serves.",
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the engine's output.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Start as written, despite findings of error severity and a memory budget that "
            "fails.",
        ),
    ] = False,
    hardware: HardwareName = None,
    models: ModelDirs = None,
    online: Online = False,
    assume: Assume = None,
    select: Select = None,
    ignore: Ignore = None,
    output_format: Annotated[
        OutputFormat, typer.Option("--output-format", help="Output format.")
    ] = OutputFormat.TEXT,
    ask: AskEngine = None,
    trust_engine: TrustEngine = False,
) -> None:
    """Start the engine of a recipe, check that it speculates, and stay until it ends."""
    from speclaunch.cli import launching  # a completion of options needs nothing of it

    words = launching.LaunchWords(
        overrides=tuple(overrides),
        config_dir=tuple(config_dir or ()),
        role=role,
        engine=engine,
        dry_run=dry_run,
        smoke=smoke,
        detach=detach,
        fresh=fresh,
        max_attempts=max_attempts,
        verbose=verbose,
        force=force,
        hardware=hardware,
        models=tuple(models or ()),
        online=online,
        assume=tuple(assume or ()),
        select=tuple(select or ()),
        ignore=tuple(ignore or ()),
        output_format=output_format,
        ask=ask,
        trust_engine=trust_engine,
    )
    raise typer.Exit(launching.launch_recipe(words))
