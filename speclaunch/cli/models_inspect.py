"""`speclaunch models inspect`: the tensors of a checkpoint against what the engine loads."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from speclaunch.cli.check_options import engine_versions
from speclaunch.cli.formats import OutputFormat
from speclaunch.engine.catalogue import held_versions
from speclaunch.errors import ExitCode, InputError, Problem
from speclaunch.planning.inspection import inspect_checkpoint
from speclaunch.report.console import out
from speclaunch.report.inspection import inspection_json, show_inspection
from speclaunch.rules.finding import Severity


def inspect(
    checkpoint: Annotated[
        str,
        typer.Argument(metavar="PATH|NAME", help="A checkpoint's directory, or its name."),
    ],
    target: Annotated[
        str | None,
        typer.Option(
            "--target", metavar="PATH|NAME", help="The target that this checkpoint drafts for."
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            metavar="VERSION",
            help="The SGLang version whose loader is asked. Default: the newest known.",
        ),
    ] = None,
    output_format: Annotated[
        OutputFormat, typer.Option("--output-format", help="Output format.")
    ] = OutputFormat.TEXT,
) -> None:
    """Check a checkpoint's tensors against what the engine loads, by the heads of its files."""
    versions = engine_versions(engine)
    if len(versions) > 1:
        raise InputError(Problem(f"--engine {engine} names several versions", help="name one"))
    found = inspect_checkpoint(checkpoint, target, versions[0] if versions else held_versions()[-1])
    if output_format is OutputFormat.JSON:
        typer.echo(json.dumps(inspection_json(found), indent=2, ensure_ascii=False))
    else:
        show_inspection(out(), found)
    failing = any(one.severity is Severity.ERROR for one in found.findings)
    raise typer.Exit(ExitCode.FAILED if failing else ExitCode.CLEAN)
