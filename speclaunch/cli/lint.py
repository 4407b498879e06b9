"""`speclaunch lint`: recipes, scripts, compose and Kubernetes files, checked without starting."""

from __future__ import annotations

from typing import Annotated

import typer

from speclaunch.cli.formats import OutputFormat
from speclaunch.cli.linting import LintWords, check_files
from speclaunch.cli.options import (
    Assume,
    ConfigDirs,
    EngineVersions,
    HardwareName,
    Ignore,
    ModelDirs,
    Online,
    Select,
)


def lint(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATHS",
            help="Files or directories; `-` reads standard input. Default: the current directory.",
        ),
    ] = None,
    config_dir: ConfigDirs = None,
    engine: EngineVersions = None,
    hardware: HardwareName = None,
    models: ModelDirs = None,
    online: Online = False,
    assume: Assume = None,
    select: Select = None,
    ignore: Ignore = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings, too.")] = False,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Check all files, also those that did not change.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Processes that check. Default: more than one for many files."),
    ] = None,
    output_format: Annotated[
        OutputFormat, typer.Option("--output-format", help="Output format.")
    ] = OutputFormat.TEXT,
) -> None:
    """Check deployments in files against the rules, for one or more engine versions."""
    asked = LintWords(
        tuple(paths or ()),
        tuple(config_dir or ()),
        engine,
        hardware,
        tuple(models or ()),
        online,
        tuple(assume or ()),
        tuple(select or ()),
        tuple(ignore or ()),
        strict,
        no_cache,
        jobs,
        output_format,
    )
    raise typer.Exit(check_files(asked))
